"""The exact value and slopes of a program at a point: intervals of more and more bits, until one tells.

A second opinion beside `certify`: mpmath instead of Arb, and slopes by forward differentiation
of the formula as declared, with PyTorch's convention at every kink.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import intervals as iv
from intervals import NOUGHT, UNIT, Interval, Undecided, Undefined
from mpmath import libmp, mp
from primitives_in_intervals import CONDITIONS, SLOPES, VALUES

from fusegen.core.term import Apply, Name, Number, Program, Term

PRECISIONS = (256, 1024, 4096, 16384)
TOLD = 90  # bits of a result
FAR_OUT = 1400  # 2**FAR_OUT is beyond every format, and so is its reciprocal


def value(
    program: Program, params: Mapping[str, float], inputs: tuple[float, ...]
) -> Fraction | float | None:
    """The exact result; infinite or 0 if it is beyond every format, None where none exists or is found."""
    return _told(lambda: Evaluation(program, params, inputs).value(program.results[0]))


def slopes(
    program: Program, params: Mapping[str, float], inputs: tuple[float, ...]
) -> list[Fraction | float | None]:
    """The exact slope by each input, as `value` has the result."""

    def slope(by: str) -> Interval:
        return Evaluation(program, params, inputs, by).slope(program.results[0])

    return [_told(partial(slope, by)) for by in program.inputs]


def _told(interval: Callable[[], Interval]) -> Fraction | float | None:
    """The number that an interval determines, with the fewest bits that do."""
    for precision in PRECISIONS:
        with mp.workprec(precision):
            try:
                found = _number(interval())
            except Undecided:
                continue
            except Undefined:
                return None
        if found is not None:
            return found
    return None


def _number(found: Interval) -> Fraction | float | None:
    """The number in an interval, if it is narrow, or beyond every format."""
    if found.lo == found.hi == libmp.fzero or max(iv.size(found.lo), iv.size(found.hi)) < -FAR_OUT:
        return Fraction(0)
    if min(iv.size(found.lo), iv.size(found.hi)) > FAR_OUT and found.lo[0] == found.hi[0]:
        return float("-inf") if found.lo[0] else float("inf")
    wide = libmp.mpf_sub(found.hi, found.lo, mp.prec, "c")
    if libmp.fnan in (wide, found.lo) or iv.size(wide) > iv.size(found.lo) - TOLD:
        return None
    sign, mantissa, exponent, _ = found.lo
    magnitude = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return -magnitude if sign else magnitude


@dataclass
class Evaluation:
    """One evaluation of a program in intervals of `mp.prec` bits.

    Attributes:
        program: what is evaluated.
        params: the values of its scalars.
        inputs: those of its tensors.
        by: the input that slopes are by.
    """

    program: Program
    params: Mapping[str, float]
    inputs: tuple[float, ...]
    by: str = ""

    def __post_init__(self) -> None:
        named = {**self.params, **dict(zip(self.program.inputs, self.inputs, strict=True))}
        self.values = {name: iv.point(x) for name, x in named.items()}
        self.gradients = {name: UNIT if name == self.by else NOUGHT for name in named}
        for let in self.program.lets:
            self.values[let.name] = self.value(let.term)
            if self.by:
                self.gradients[let.name] = self.slope(let.term)

    def value(self, term: Term) -> Interval:
        """The value of a term."""
        match term:
            case Number(number):
                return iv.rational(number.numerator, number.denominator)
            case Name(name):
                return self.values[name]
            case Apply("where", (condition, chosen, other)):
                return self.value(chosen if self.holds(condition) else other)
            case Apply(op, args):
                return VALUES[op](*map(self.value, args))
        raise TypeError(term)

    def holds(self, condition: Term) -> bool:
        """Tells whether a condition holds."""
        assert isinstance(condition, Apply)
        return CONDITIONS[condition.op](*map(self.value, condition.args))

    def slope(self, term: Term) -> Interval:
        """The slope of a term by the input `by`."""
        match term:
            case Number():
                return NOUGHT
            case Name(name):
                return self.gradients[name]
            case Apply("where", (condition, chosen, other)):
                return self.slope(chosen if self.holds(condition) else other)
            case Apply(op, args):
                total, values = NOUGHT, [self.value(arg) for arg in args]
                for partial, inner in zip(SLOPES[op], map(self.slope, args), strict=True):
                    if inner != NOUGHT:
                        total = iv.add(total, iv.mul(partial(*values), inner))
                return total
        raise TypeError(term)
