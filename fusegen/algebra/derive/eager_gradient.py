"""The gradient as autograd computes it of eager's operations: rounded after each."""

from functools import reduce

from fusegen.algebra.derive.reverse import ZERO, Part, Reverse
from fusegen.core.gradients import GRADIENTS
from fusegen.core.ops import OPS
from fusegen.core.term import Apply, Term, call, names, rebuild

EXACT = ("where", "neg", "round_to_storage")  # operations whose result the storage type holds already


class EagerReverse(Reverse):
    """The adjoints of eager's operations, in eager's order."""

    def rule(self, operation: Apply, g: Term, y: Term) -> tuple[Term | None, ...]:
        """Return the gradients of the arguments of an operation, rounded as eager rounds them."""
        row = GRADIENTS[operation.op]
        parts = (row.eager or row.rule)(g, y, *operation.args)
        return tuple(part and self.rounded(part) for part in parts)

    def part(self, part: Part) -> Part:
        """Return a part as it is kept: as it is."""
        return part

    def total(self, parts: list[Part]) -> Term:
        """Return the sum of the parts of an adjoint, one after the other."""
        whole = [part.term for part in parts]
        return reduce(lambda a, b: call("round_to_storage", a + b), whole) if whole else ZERO

    def rounded(self, term: Term) -> Term:
        """Return a term with eager's rounding after each operation on a tensor that computes."""
        term = rebuild(term, self.rounded)
        if not isinstance(term, Apply) or term.op in EXACT or OPS[term.op].boolean:
            return term
        is_number = set(names(term)) <= self.constants
        return term if is_number else call("round_to_storage", term)


class WrittenReverse(EagerReverse):
    """The same, with a step for each operation as often as it is written, as autograd records them.

    The adjoint of a value that is written twice is a sum: its zeros have the sign that this sum gives.
    """

    def step_of(self, flat: Term) -> str | None:
        """Return none: no step is shared."""
        return None
