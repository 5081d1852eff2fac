"""Intervals of terms, from the tables of `factors` and the rows of the operations."""

from fractions import Fraction
from functools import cache
from itertools import product

from fusegen.algebra.simplify.factors import FACTORS, INCREASING, MOST, PRODUCTS, TINY, enclosure, widened
from fusegen.algebra.simplify.rules import matched
from fusegen.core import interval
from fusegen.core.interval import REALS, Interval, point
from fusegen.core.ops import OPS
from fusegen.core.term import Apply, Name, Number, Term, call, substitute
from fusegen.numerics.reals.enclosures import increasing


class Ranges:
    """Intervals that hold every value of a term, real or computed."""

    def __init__(self, ranges: dict[str, Interval]) -> None:
        """Take the intervals of the names."""
        self.ranges = ranges
        self.steps: dict[str, Term] = {}

    def name(self, step: str, term: Term) -> None:
        """Give a term a name, through which it stays visible."""
        self.ranges[step] = self.range(term)
        self.steps[step] = term

    def range(self, term: Term) -> Interval:
        """Return an interval that holds every value of a term."""
        match term:
            case Number(value):
                return point(value)
            case Name(name):
                return self.ranges[name]
            case Apply("mul", (a, b)) if a == b:
                return interval.square(self.range(a))
            case Apply(op, args):
                parts = [self.range(arg) for arg in args]
                return _cut(OPS[op].range(*parts), self._of_row(term, parts))
            case _:
                raise AssertionError("compose has replaced every call of a spec")

    def _of_row(self, term: Apply, parts: list[Interval]) -> Interval:
        """Return the interval that a row of the tables gives; all numbers where none matches."""
        if term.op in INCREASING:
            return widened(increasing(*INCREASING[term.op], parts[0]), TINY)
        if term.op in PRODUCTS:
            return self._product(term.args[0], substitute(PRODUCTS[term.op], {"a": term.args[0]}))
        if term.op == "div":
            return self._product(term.args[0], call("div", 1, term.args[1]))
        if term.op != "mul":
            return REALS
        found = REALS
        for x, factor in (term.args, term.args[::-1]):
            (first, rest), (second, other) = self._scaled(x), self._scaled(factor)
            found = _cut(found, self._product(x, factor))
            if 1 / MOST <= abs(first * second) <= MOST:
                found = _cut(found, interval.multiply(self._product(rest, other), point(first * second)))
        return found

    def _product(self, x: Term, factor: Term) -> Interval:
        """Return the interval of x times a factor, by the row of the factor."""
        for row in FACTORS:
            for pattern in _orders(row.pattern):
                found = matched(pattern, factor, {"a": x}, self.steps) or {}
                numbers = (found[name] for name in ("k_", "m_") if name in found)
                constants = tuple(number.value for number in numbers if isinstance(number, Number))
                if found and all(1 / MOST <= constant <= MOST for constant in constants):
                    return widened(enclosure(row, constants, self.range(x)), row.error)
        return REALS

    def _scaled(self, term: Term) -> tuple[Fraction, Term]:
        """Return a term as a number times the rest."""
        match self.steps.get(term.name) if isinstance(term, Name) else term:
            case Apply("mul", (Number(k), a)) | Apply("mul", (a, Number(k))):
                scale, rest = self._scaled(a)
                return k * scale, rest
            case Apply("div", (a, Number(k))) if k:
                scale, rest = self._scaled(a)
                return scale / k, rest
        return Fraction(1), term


@cache
def _orders(pattern: Term) -> tuple[Term, ...]:
    """Return a pattern in every order of its sums and products."""
    if not isinstance(pattern, Apply):
        return (pattern,)
    found = [Apply(pattern.op, args) for args in product(*map(_orders, pattern.args))]
    swapped = [Apply(p.op, p.args[::-1]) for p in found if p.op in ("add", "mul")]
    return tuple(dict.fromkeys((*found, *swapped)))


def _cut(a: Interval, b: Interval) -> Interval:
    """Return the intersection of two intervals around the same values."""
    return Interval(max(a.low, b.low), min(a.high, b.high))
