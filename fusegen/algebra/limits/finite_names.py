"""Names of values that are kept finite: one prefix and the value's own; a number tells several apart."""

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import count

from fusegen.core.term import Name, Program, Term, substitute

PREFIX = "finite"
PREFIXED = re.compile(rf"(?:{PREFIX}_)*({PREFIX}_\w+|{PREFIX}\d*)")


def renamed(program: Program, known: Collection[str]) -> Program:
    """Return the program with short names of lets that guards added, and without lets that only rename."""
    taken, values, lets = {*known, *program.inputs, *program.params}, dict[str, Term](), []
    for let in program.lets:
        term = substitute(let.term, values)
        new = let.name not in known
        if new and isinstance(term, Name):
            values[let.name] = term
            continue
        name = next(each for each in _names(let.name, known) if each not in taken) if new else let.name
        taken.add(name)
        values[let.name] = Name(name)
        lets.append(replace(let, name=name, term=term))
    results = tuple(substitute(result, values) for result in program.results)
    return replace(program, lets=tuple(lets), results=results)


def _names(name: str, known: Collection[str]) -> Iterator[str]:
    """Yield names to choose from: of another name with digits behind it, without these first."""
    found = PREFIXED.fullmatch(name)
    base = found[1] if found else name
    bare = base.removeprefix(f"{PREFIX}_")
    ends = (bare[:end] for end in range(1, len(bare) + 1) if bare[end:].isdigit() or end == len(bare))
    of = next((each for each in ends if each in known), bare.rstrip("0123456789"))
    like = of if of == PREFIX or not found else f"{PREFIX}_{of}"
    yield like
    yield from (f"{like}_{number}" for number in count(2))
