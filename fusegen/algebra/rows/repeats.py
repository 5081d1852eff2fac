"""Programs in which what is computed twice of values of the row has a name, so that it has one slope."""

from collections import Counter
from collections.abc import Collection, Mapping

from fusegen.algebra.rows.flat import flat, level, levels
from fusegen.core.folds import FOLDS, Level
from fusegen.core.ops import OPS
from fusegen.core.scans import SCANS
from fusegen.core.term import Apply, Let, Name, Program, Term, names, rebuild, unused, walk


def once_each(program: Program, others: Mapping[str, Level]) -> Program:
    """Return the flat program with a let for each term that reads the row's values and occurs twice.

    ``(x - mean(x)) * rsqrt(mean((x - mean(x)) ** 2))`` has one name for both differences, so that the
    adjoint of the mean is one sum over the row, of what comes to that name.
    """
    program = flat(program, others)
    of = levels(program, others)
    counts = Counter(part for term in program.terms for part in walk(term) if _is_element_of_row(part, of))
    shared = {part for part, count in counts.items() if count > 1}
    return _named(program, shared) if shared else program


def _is_element_of_row(term: Term, of: Mapping[str, Level]) -> bool:
    """Return True if a term is one of each element, and reads a value of the row."""
    computed = isinstance(term, Apply) and not OPS[term.op].boolean and level(term, of) is Level.ELEMENT
    return computed and any(of[name] is Level.ROW for name in names(term))


def _named(program: Program, shared: Collection[Term]) -> Program:
    """Return a program with lets of some terms, each in front of the first that reads it."""
    taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}
    taken |= OPS.keys() | FOLDS.keys() | SCANS.keys()
    known: dict[Term, Name] = {}
    lets: list[Let] = []

    def change(term: Term) -> Term:
        if term in known:
            return known[term]
        found = rebuild(term, change)
        if term not in shared:
            return found
        name = Name(unused("centred", taken))
        taken.add(name.name)
        lets.append(Let(name.name, found))
        known[term] = name
        return name

    for let in program.lets:
        lets.append(Let(let.name, change(let.term)))
    results = tuple(map(change, program.results))
    return Program(program.inputs, program.params, tuple(lets), results)
