"""A program in other steps: none, one for each part that occurs twice, one for each operation."""

from collections import Counter
from dataclasses import replace

from fusegen.core.ops import OPS
from fusegen.core.term import (
    Apply,
    Let,
    Name,
    Program,
    Term,
    names,
    rebuild,
    size,
    substitute,
    unused,
    walk,
)

LARGEST = 400  # nodes of a program that is written out


def written_out(program: Program) -> Program | None:
    """Return the program without steps; None where it would be too large."""
    values: dict[str, Term] = {}
    for let in program.lets:
        values[let.name] = substitute(let.term, values)
        if size(values[let.name]) > LARGEST:
            return None
    results = tuple(substitute(result, values) for result in program.results)
    return None if sum(map(size, results)) > LARGEST else replace(program, lets=(), results=results)


def shared(program: Program) -> Program:
    """Return the program with a step for every part that occurs more than once."""
    taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}
    lets = list(program.lets)
    results = program.results
    while repeated := _repeated((*(let.term for let in lets), *results)):
        name = unused("t", taken)
        taken.add(name)

        def named(term: Term, part: Term = repeated, name: str = name) -> Term:
            return Name(name) if term == part else rebuild(term, named)

        place = next((k for k, let in enumerate(lets) if repeated in walk(let.term)), len(lets))
        lets = [Let(let.name, named(let.term)) for let in lets]
        lets.insert(place, Let(name, repeated))
        results = tuple(map(named, results))
    return replace(program, lets=tuple(lets), results=results)


def _repeated(terms: tuple[Term, ...]) -> Term | None:
    """Return the largest part that occurs more than once and is worth a step; see `_is_step`."""
    count = Counter(part for term in terms for part in walk(term) if _is_step(part))
    several = [part for part, times in count.items() if times > 1]
    return max(several, key=size, default=None)


def _is_step(term: Term) -> bool:
    if not isinstance(term, Apply) or term.op in ("neg", "lt", "le", "gt", "ge", "eq", "ne"):
        return False
    return bool(names(term))


def one_operation_a_step(program: Program) -> tuple[Program, dict[str, Term]]:
    """Return a program without steps as one of a step for each operation, and the term of each step.

    What only parameters decide has none.
    """
    taken = {*program.inputs, *program.params}
    known: dict[Term, Name] = {}
    lets: list[Let] = []

    def named(term: Term) -> Term:
        inner = rebuild(term, named)
        moving = isinstance(term, Apply) and not OPS[term.op].boolean
        if not moving or set(names(term)) <= set(program.params):
            return inner
        if term not in known:
            known[term] = Name(unused("step", taken))
            taken.add(known[term].name)
            lets.append(Let(known[term].name, inner))
        return known[term]

    results = tuple(map(named, program.results))
    terms = {name.name: term for term, name in known.items()}
    return replace(program, lets=tuple(lets), results=results), terms
