"""Where CUDA's cubic polynomials of float32 results are, and where one gives a function.

runtime/include/cuda/piecewise_uniform.cuh fits them: around each centre of |x|, on either side of 0,
there is one. Its first value is that there, the rest a quadratic, by least squares in the zeros of a
Chebyshev polynomial. This does it in double for one piece.

A warp takes the longer to look 32 of them up the more cache lines they lie in. So there are as few as the
function lets there be: a line begins as early as it fits, and centres are as far apart as a sample says.
That is a matter of speed alone: wherever centres are, no piece is used that errs by too much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fusegen.ir import Math, held

Function = Callable[[Sequence[float]], Sequence[float]]  # the results of some numbers

STEPS = tuple(2.0**-e for e in (4, 5, 6, 7))
FINEST = STEPS[-1]
# where a line may begin; where it passes through, so that it is right far out; up to where it is tried
ENDS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 20.0, 24.0, 32.0, 48.0, 64.0)
FAR, LAST = 2.0**10, 2.0**126
TRIES = (*(k / 16 for k in range(1, 1024)), *(2.0**e for e in range(6, 127)))
TRIED = 16.0  # of |x|, in steps of the finest centres; few numbers are larger
SCALES = (1.0, 2.0, 4.0)  # of the normal distributions that say how many numbers a piece has
ENOUGH = 1e-4  # of them, without a polynomial that errs by less than it may
UNITS = 1.75  # in the last place, that a piece may err by
OF_A_LINE, OF_A_CUBIC = 0.75, 0.5  # of them, what its form errs by; the rest is for roundings
FIRST = 4  # pieces from 0 on, of which many numbers are; next to a zero the first value's rounding decides
NEXT = 0.6  # of a centre's value, what it may fall by up to the end of its piece, so that few digits cancel
NODES = tuple(math.cos((k + 0.5) * math.pi / 4) for k in range(4))
PIECE = tuple(math.sin(k * math.pi / 64) for k in range(-32, 33))  # closer to its ends, where most cancels
DIGITS, SUBNORMAL = 24, -125  # of a float, and the least exponent of one that has them all


@dataclass(frozen=True, slots=True)
class Side:
    """The centres on one side of 0.

    Attributes:
        step: from each to the next, the first of which is 0; a power of two.
        last: how many steps away the last is, in whose place there is a line.
        straight: whether that gives what lies beyond.
    """

    step: float
    last: int
    straight: bool


@dataclass(frozen=True, slots=True)
class Centres:
    """Those above 0 and below it."""

    above: Side
    below: Side


def centres(function: Function) -> Centres:
    """As few as a function lets there be."""
    return Centres(_side(function), _side(lambda sizes: function([-size for size in sizes])))


def fits(of: Centres, function: Function, x: float) -> bool:
    """Whether a piece gives a function at an x, to about two units in the last place."""
    sign = math.copysign(1.0, x)
    side, size = of.above if sign > 0 else of.below, abs(x)
    if not size < (side.last - 0.5) * side.step:
        return side.straight
    return _holds(
        lambda sizes: function([sign * size for size in sizes]), side.step, round(size / side.step)
    )


def _holds(function: Function, step: float, centre: int) -> bool:
    """Whether the piece at a centre gives what a function gives of sizes."""
    at = centre * step
    low, high = max(at - step / 2, 0.0), at + step / 2
    half, middle = (high - low) / 2, (high + low) / 2 - at
    nodes = [middle + half * node for node in NODES]
    first, *values = function([at, *(at + t for t in nodes)])
    rises = [(value - first) / t for value, t in zip(values, nodes, strict=True)]
    mean = sum(rises) / 4
    slope = sum(rise * node for rise, node in zip(rises, NODES, strict=True)) / 2 / half
    bend = sum(rise * (node * node - 0.5) for rise, node in zip(rises, NODES, strict=True)) / half**2 * 2
    linear = mean - bend * half**2 / 2 - slope * middle + bend * middle**2
    if not math.isfinite(first + linear + slope + bend):
        return False
    base, *slopes = (_single(c) for c in (first, linear, slope - 2 * bend * middle, bend))

    def errs() -> Iterator[bool]:
        places = [_single(middle + half * end) for end in PIECE]
        for t, exact in zip(places, function([at + t for t in places]), strict=True):
            y = slopes[-1]
            for c in (*slopes[-2::-1], base):
                y = _single(y * t + c)
            lost = y == 0 and math.copysign(1.0, exact) != math.copysign(1.0, y)
            yield lost or not abs(y - exact) <= UNITS * _unit(exact)

    return not any(errs())


def _side(function: Function) -> Side:
    """The centres of what a function gives of sizes."""
    tried = dict(zip(TRIES, function(TRIES), strict=True))
    straight = next((end for end in ENDS if _is_straight(tried, end)), None)
    end = straight or ENDS[-1]
    values = function([k * FINEST for k in range(int(min(end, TRIED) / FINEST) + 5)])

    def enough(step: float) -> bool:
        return _left(values, step) <= ENOUGH and all(_holds(function, step, k) for k in range(FIRST))

    step = next(filter(enough, STEPS), FINEST)
    return Side(step, int(end / step) + 1, straight is not None)


def _is_straight(values: Mapping[float, float], end: float) -> bool:
    """Whether a line gives all that lies beyond an end."""
    rise = (values[LAST] - values[LAST / 2]) / (LAST / 2)
    slope, base = _single(rise), _single(values[FAR] - rise * FAR)

    def errs() -> Iterator[bool]:
        for size, exact in values.items():
            if size >= end:
                y = base + slope * size
                lost = y == 0 and math.copysign(1.0, exact) != math.copysign(1.0, y)
                yield lost or not abs(y - exact) <= OF_A_LINE * _unit(exact)

    return not any(errs())


def _left(values: Sequence[float], step: float) -> float:
    """Of how many numbers a piece would err by too much, were they a step apart.

    Its quadratic leaves a quarter of the cubic Chebyshev polynomial, by the fourth differences of values.
    """
    wide = int(step / FINEST)
    found = 0.0
    for centre in range(0, len(values) - 4, wide):
        near = range(max(centre - wide // 2, 0), min(centre + wide // 2 + 1, len(values) - 4))
        if not _is_smooth(values, centre, wide, near):
            found += sum(_density(centre * FINEST, scale) for scale in SCALES) / len(SCALES)
    return found * step


def _is_smooth(values: Sequence[float], centre: int, wide: int, near: range) -> bool:
    """Whether one piece would give what is near its centre."""
    if centre:
        rise = abs(values[centre + 1] - values[centre - 1]) / 2
        if not rise * wide / 2 <= NEXT * abs(values[centre]):
            return False

    def errs() -> Iterator[bool]:
        for k in near:
            a, b, c, d, e = values[max(k - 2, 0) :][:5]
            left = abs(a - 4 * b + 6 * c - 4 * d + e) * wide**3
            yield not left * (wide / 1536 if centre else k / 6144) <= OF_A_CUBIC * _unit(values[k])

    return not any(errs())


def _density(x: float, scale: float) -> float:
    """Of a normal distribution."""
    return math.exp(-((x / scale) ** 2) / 2) / (scale * math.sqrt(2 * math.pi))


def _single(number: float) -> float:
    """The nearest float."""
    return held(number, Math.FLOAT)


def _unit(number: float) -> float:
    """The last place of a number, as a float has it."""
    _, exponent = math.frexp(number)
    return math.ldexp(1.0, max(exponent, SUBNORMAL) - DIGITS)
