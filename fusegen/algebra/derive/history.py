"""The tensors through which PyTorch records no gradient: conditions, and what is detached."""

from collections.abc import Mapping

from fusegen.core.ops import OPS
from fusegen.core.term import Apply, Name, Program, Term, children


def detached(program: Program) -> tuple[str, ...]:
    """Return the inputs that eager's operations read, if at all, where no gradient is recorded.

    So does ``where(x > 0, 1, 0)`` read x, whose result requires no gradient, while that of ``sign(x)``
    has one, of zeros.
    """
    recorded: dict[str, frozenset[str]] = {name: frozenset({name}) for name in program.inputs}
    for let in program.lets:
        recorded[let.name] = _recorded(let.term, recorded)
    found = frozenset[str]().union(*(_recorded(result, recorded) for result in program.results))
    return tuple(name for name in program.inputs if name not in found)


def _recorded(term: Term, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the inputs that a gradient of a term goes back to."""
    match term:
        case Name(name):
            return known.get(name, frozenset())
        case Apply(op) if op == "detach" or OPS[op].boolean:
            return frozenset()
    return frozenset[str]().union(*(_recorded(part, known) for part in children(term)))
