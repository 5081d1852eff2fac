"""Steps that are used once, put where they are used; and names that are free."""

from collections import Counter
from collections.abc import Iterable

from fusegen.core.ops import OPS
from fusegen.core.term import Let, Name, Program, Term, substitute, walk


def inlined(program: Program, written: set[str]) -> Program:
    """Return the program with each step that is used once put where it is used; the author's names stay."""
    count = Counter(
        part.name
        for term in (*(let.term for let in program.lets), *program.results)
        for part in walk(term)
        if isinstance(part, Name)
    )
    lets: list[Let] = []
    once: dict[str, Term] = {}
    for let in program.lets:
        term = substitute(let.term, once)
        if count[let.name] == 1 and let.name not in written:
            once[let.name] = term
        else:
            lets.append(Let(let.name, term))
    results = tuple(substitute(result, once) for result in program.results)
    return Program(program.inputs, program.params, tuple(lets), results)


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return the first of name, name2, name3, ... that is neither taken nor an operation."""
    taken, free, count = set(taken), name, 1
    while free in taken or free in OPS:
        count += 1
        free = f"{name}{count}"
    return free
