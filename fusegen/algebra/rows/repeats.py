"""Programs in which what is computed twice of values of the row has a name, so that it has one slope."""

from collections import Counter
from collections.abc import Mapping

from fusegen.algebra.rows.flat import Namer, flat, level, levels
from fusegen.core.folds import Level
from fusegen.core.ops import OPS
from fusegen.core.term import Apply, Program, Term, names, rebuild, walk


def once_each(program: Program, others: Mapping[str, Level]) -> Program:
    """Return the flat program with a let for each term that reads the row's values and occurs twice.

    ``(x - mean(x)) * rsqrt(mean((x - mean(x)) ** 2))`` has one name for both differences, so that the
    adjoint of the mean is one sum over the row, of what comes to that name.
    """
    program = flat(program, others)
    of, namer = levels(program, others), Namer(program, others)
    counts = Counter(part for term in program.terms for part in walk(term) if _is_element_of_row(part, of))

    def change(term: Term) -> Term:
        found = rebuild(term, change)
        return namer.named(found, "centred") if counts[term] > 1 else found

    for let in program.lets:
        namer.add(let.name, change(let.term))
    results = tuple(map(change, program.results))
    return Program(program.inputs, program.params, tuple(namer.lets), results)


def _is_element_of_row(term: Term, of: Mapping[str, Level]) -> bool:
    """Return True if a term is one of each element, and reads a value of the row."""
    computed = isinstance(term, Apply) and not OPS[term.op].boolean and level(term, of) is Level.ELEMENT
    return computed and any(of[name] is Level.ROW for name in names(term))
