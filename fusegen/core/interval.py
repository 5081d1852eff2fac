"""Closed intervals that hold every value a float computation can give.

End points are exact fractions or infinities. Each result is widened outward to float32 numbers: rounding
to nearest is monotone, so a value whose exact bounds are float32 numbers stays inside them after it is
rounded to float32 or to float64. NaN is outside every interval; a fact about an interval speaks of the
values that are numbers.

Source: Moore, Kearfott and Cloud 2009, Introduction to Interval Analysis, chapters 2 and 3.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

Bound = Fraction | float  # a float only as an infinity

INFINITY = math.inf
FLOAT32_BITS, FLOAT32_MIN_EXPONENT = 24, -149
FLOAT32_MAX = Fraction((2**24 - 1) * 2**104)


@dataclass(frozen=True, slots=True)
class Interval:
    """All numbers from `low` to `high`, both included."""

    low: Bound
    high: Bound

    def __str__(self) -> str:
        return f"[{_text(self.low)}, {_text(self.high)}]"


@dataclass(frozen=True, slots=True)
class Truth(Interval):
    """The two values of a mask, 0 and 1; what holds of every number between them holds of these."""


REALS = Interval(-INFINITY, INFINITY)
Point = Mapping[str, float]  # a value of each input
TRUTH = Truth(Fraction(0), Fraction(1))


def in_words(at: Point) -> str:
    """Return a point as messages show it: ``x = 0.5, y = -3``."""
    return ", ".join(f"{name} = {value:.9g}" for name, value in at.items())


def point(value: Fraction) -> Interval:
    """Return the interval that holds one number (and the float32 numbers around it, if it is none)."""
    return _outward([value, value])


def between(low: Bound | int, high: Bound | int) -> Interval:
    """Return the interval with the given ends, widened to float32 numbers."""
    return _outward([_bound(low), _bound(high)])


def add(a: Interval, b: Interval) -> Interval:
    """Return every a + b."""
    return _outward([a.low + b.low, a.high + b.high])


def negate(a: Interval) -> Interval:
    """Return every -a."""
    return Interval(-a.high, -a.low)


def subtract(a: Interval, b: Interval) -> Interval:
    """Return every a - b."""
    return add(a, negate(b))


def multiply(a: Interval, b: Interval) -> Interval:
    """Return every a * b."""
    return _outward(
        [(Fraction(0) if p == 0 or q == 0 else p * q) for p in (a.low, a.high) for q in (b.low, b.high)]
    )


def divide(a: Interval, b: Interval) -> Interval:
    """Return every a / b, also where it is computed as a times the rounded 1 / b."""
    if b.low <= 0 <= b.high:
        return REALS
    rounded = _outward([_inverse(b.low), _inverse(b.high)])
    return multiply(a, rounded)


def minimum(a: Interval, b: Interval) -> Interval:
    """Return every min(a, b)."""
    return Interval(min(a.low, b.low), min(a.high, b.high))


def maximum(a: Interval, b: Interval) -> Interval:
    """Return every max(a, b)."""
    return Interval(max(a.low, b.low), max(a.high, b.high))


def clamp(a: Interval, low: Interval, high: Interval) -> Interval:
    """Return every min(max(a, low), high)."""
    return minimum(maximum(a, low), high)


def absolute(a: Interval) -> Interval:
    """Return every |a|."""
    near, far = sorted((_size(a.low), _size(a.high)))
    return Interval(Fraction(0) if a.low <= 0 <= a.high else near, far)


def square(a: Interval) -> Interval:
    """Return every a * a."""
    size = absolute(a)
    return multiply(size, size)


def rounded16(a: Interval) -> Interval:
    """Return every a rounded to bfloat16 or to float16; zero stays, and beyond 65504 lies infinity."""
    low, high = _moved16(a.low, -1), _moved16(a.high, 1)
    return _outward([-INFINITY if low < -65504 else low, INFINITY if high > 65504 else high])


def union(a: Interval, b: Interval) -> Interval:
    """Return the least interval around both."""
    return Interval(min(a.low, b.low), max(a.high, b.high))


def _outward(values: list[Bound]) -> Interval:
    return Interval(_float32_below(min(values)), -_float32_below(-max(values)))


def _float32_below(value: Bound) -> Bound:
    """Return the largest float32 that is at most `value`."""
    if isinstance(value, float):
        return value
    if value < -FLOAT32_MAX:
        return -INFINITY
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** exponent:
        exponent -= 1  # now 2**exponent <= |value| < 2**(exponent + 1)
    quantum = Fraction(2) ** max(exponent + 1 - FLOAT32_BITS, FLOAT32_MIN_EXPONENT)
    return min(math.floor(value / quantum) * quantum, FLOAT32_MAX)


def _moved16(end: Bound, direction: int) -> Bound:
    """Return an end moved by more than a 16-bit rounding can, but never past zero."""
    if end == 0 or isinstance(end, float):
        return end
    moved = end + direction * (abs(end) / 128 + Fraction(1, 2**24))
    return moved if (moved > 0) == (end > 0) else Fraction(0)


def _size(end: Bound) -> Bound:
    return -end if end < 0 else end


def _inverse(a: Bound) -> Bound:
    return Fraction(0) if isinstance(a, float) else 1 / a


def _bound(value: Bound | int) -> Bound:
    return Fraction(value) if isinstance(value, int) else value


def _text(value: Bound) -> str:
    if isinstance(value, float):
        return "inf" if value > 0 else "-inf"
    return str(value) if value.denominator < 1000 else f"{float(value):.9g}"
