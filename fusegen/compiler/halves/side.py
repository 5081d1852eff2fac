"""Where a function is given by a series, and the series as a function and as a term."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from fusegen.core.term import INFINITY, Apply, Let, Name, Number, Program, Term, call, unused


@dataclass(frozen=True, slots=True)
class Side:
    """The numbers next to 0 or far out."""

    far: bool  # whether they lie far out
    sign: int  # theirs; 0 of both

    def holds(self, x: float) -> bool:
        """Return True if a number, from 1 on or below it, lies there."""
        return (abs(x) >= 1) is self.far and (not self.sign or x * self.sign > 0)

    def edge(self, missed: Sequence[float], widen: float) -> float:
        """Return a power of two up to which, or from which on, there is more than all that is missed."""
        if self.far:
            return 2.0 ** math.floor(math.log2(min(map(abs, missed)) / widen))
        return 2.0 ** math.ceil(math.log2(max(map(abs, missed)) * 1.001 * widen))

    def at(self, edge: float, t: float) -> float:
        """Return the number of a variable that is 0 at 0 or at infinity, and 1 or -1 at the edge."""
        return edge / t if self.far else edge * t

    def condition(self, x: Term, edge: float) -> Term:
        """Return the condition that a number lies between the edge and 0 or infinity."""
        size = call("abs", x) if not self.sign else x if self.sign > 0 else -x
        return size > edge if self.far else size < edge


@dataclass(frozen=True, slots=True)
class Series:
    """A function between an edge and 0 or infinity."""

    side: Side  # where
    edge: float  # up to which number, or from which on
    power: Fraction  # of x before the sum; of |x|, if that is no integer
    terms: tuple[float, ...]  # coefficients of the powers of x, or of 1 / x
    rate: Fraction = Fraction(0)  # of the factor e^(rate x), which falls

    def __call__(self, x: float) -> float:
        """Return the value at a number."""
        t = 1 / x if self.side.far else x
        total = 0.0
        for factor in reversed(self.terms):
            total = total * t + factor
        return total * powered(x, self.power) * math.exp(float(self.rate) * x)

    def term(self, x: Name) -> Term:
        """Return the series as a term."""
        t: Term = 1 / x if self.side.far else x
        last, *others = reversed(self.terms)
        total: Term = _number(last)
        for factor in others:
            total = total * t
            total = total + _number(factor) if factor else total
        whole = _times_power(total, x, self.power)
        return whole * call("exp", self.rate * x) if self.rate else whole


def corrected(program: Program, name: str, found: Sequence[Series]) -> Program:
    """Return a program whose result is given by series but at 0, times the incoming gradient if any."""
    x, [result] = Name(name), program.results
    taken = {*program.inputs, *program.params, *(let.name for let in program.lets)}
    formula = Name(unused("formula", taken))
    grads = [Name(each) for each in program.inputs if each != name]
    best: Term = formula
    for series in found:
        own = series.term(x)
        for grad in grads:
            own = grad * own
        best = Apply("where", (series.side.condition(x, series.edge), own, best))
    if not all(series.side.far for series in found):
        best = Apply("where", (call("eq", x, 0), formula, best))
    return Program(program.inputs, program.params, (*program.lets, Let(formula.name, result)), (best,))


def _number(value: float) -> Number:
    return Number(Fraction(value) if math.isfinite(value) else INFINITY * (1 if value > 0 else -1))


def powered(x: float, power: Fraction) -> float:
    """Return a power of a number; of its size, if the power is no integer."""
    try:
        return x**power.numerator if power.denominator == 1 else abs(x) ** float(power)
    except OverflowError:
        return math.inf


def _times_power(total: Term, x: Name, by: Fraction) -> Term:
    """Return a term times a power of x, by products with squares: no power overflows before the product."""
    if by.denominator > 1:
        return total * call("pow", call("abs", x), by)
    power = by.numerator
    for _ in range(abs(power) % 2):
        total = total * x if power > 0 else total / x
    for _ in range(abs(power) // 2):
        total = total * call("square", x) if power > 0 else total / call("square", x)
    return total
