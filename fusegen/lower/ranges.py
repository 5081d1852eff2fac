"""Intervals that hold every value of a term, as the operators' rows give them."""

from fusegen.core.interval import REALS, Interval, point
from fusegen.core.ops import ROWS
from fusegen.core.term import Apply, Name, Number, Term


class Ranges:
    """The intervals of terms, each found once; of a name nothing is known but what was put there."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self.ranges: dict[Term, Interval] = {}

    def range(self, term: Term) -> Interval:
        """Return an interval that holds every value of a term."""
        if term not in self.ranges:
            self.ranges[term] = self.found_range(term)
        return self.ranges[term]

    def found_range(self, term: Term) -> Interval:
        """Return the same, found again."""
        match term:
            case Number(value):
                return point(value)
            case Name():
                return REALS
            case Apply(op, args):
                return ROWS[op].range(*map(self.range, args))
        raise AssertionError("compose has replaced every call of a spec")
