"""Where CUDA's cubic polynomials of float32 results are, and where one gives a function.

runtime/include/cuda/piecewise_uniform.cuh fits them: around each centre of |x|, on either side of 0,
there is one. Its first value is that there, the rest a quadratic, by least squares in the zeros of a
Chebyshev polynomial. This does it in double for one piece. Those of piecewise_segments.cuh have one step on
both sides, and round once.

A warp takes the longer to look 32 of them up the more cache lines they lie in. So there are as few as the
function lets there be: a line begins as early as it fits, and centres are as far apart as a sample says.
That is a matter of speed alone: wherever centres are, no piece is used that errs by too much.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from fusegen.ir import Math, round_to

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
OF_A_LINE, OF_A_CUBIC = 0.75, 0.5  # ulp that a polynomial errs by before it is rounded
FIRST = 4  # pieces from 0 on, of which many numbers are; next to a zero the first value's rounding decides
NEXT = 0.6  # of a centre's value, what it may fall by up to the end of its piece, so that few digits cancel
NODES = tuple(math.cos((k + 0.5) * math.pi / 4) for k in range(4))
PIECE = tuple(math.sin(k * math.pi / 64) for k in range(-32, 33))  # closer to its ends, where most cancels
DIGITS, SUBNORMAL = 24, -125  # of a float, and the least exponent of one that has them all


@dataclass(frozen=True, slots=True)
class HalfGrid:
    """The centres on one side of 0.

    Attributes:
        step: from each to the next, the first of which is 0; a power of two.
        last: how many steps away the last is, in whose place there is a line.
        linear_tail: whether the line from there on fits the function.
    """

    step: float
    last: int
    linear_tail: bool


@dataclass(frozen=True, slots=True)
class UniformGrid:
    """A grid of centres: one half above 0, the other below it."""

    above: HalfGrid
    below: HalfGrid


@dataclass(frozen=True, slots=True)
class Form:
    """The way to store and to compute a polynomial around a centre.

    Attributes:
        most: the ulp that it may err by.
        least: the least number that the piece of 0 gives.
        packed: its four coefficients in double as five floats: those of a polynomial, the highest first,
            and what is added to it.
    """

    most: float
    least: float
    packed: Callable[[Sequence[float]], Sequence[float]]


def _as_floats(of: Sequence[float]) -> Sequence[float]:
    return (*map(_single, reversed(of)), -0.0)


def _with_rest(of: Sequence[float]) -> Sequence[float]:
    """The low 12 bits of the highest coefficient are the first 12 of what the lowest leaves."""
    first, linear, quadratic, cubic = of
    zero = -0.0 if linear else 0.0
    base, rest = (_single(first), first - _single(first)) if first else (zero, zero)
    low = (_bits(rest) + 0x80000) >> 20
    highest = _float(_bits(cubic) & 0xFFFFF000 | low)
    return highest, _single(quadratic), _single(linear), _float(low << 20 & 0xFFFFFFFF), base


UNIFORM, SEGMENT = Form(1.75, 0.0, _as_floats), Form(1.25, -math.inf, _with_rest)


def uniform_grid(function: Function) -> UniformGrid:
    """The grid with the fewest pieces that fit a function."""
    return UniformGrid(_side(function), _side(lambda sizes: function([-size for size in sizes])))


def of_one_step(of: UniformGrid, step: float) -> UniformGrid:
    """The centres of both sides, with a step that is no larger than theirs."""
    sides = (
        HalfGrid(step, int(side.last * side.step / step), side.linear_tail) for side in (of.above, of.below)
    )
    return UniformGrid(*sides)


def fits(of: UniformGrid, function: Function, form: Form) -> Callable[[float], bool]:
    """A predicate that is true of the numbers at which a piece gives a function.

    Args:
        of: where pieces are.
        function: that they are fitted to.
        form: of the pieces.
    """

    @cache
    def holds(sign: float, centre: int) -> bool:
        step = (of.above if sign > 0 else of.below).step
        return _holds(lambda sizes: function([sign * size for size in sizes]), step, centre, form)

    def at(x: float) -> bool:
        sign = math.copysign(1.0, x)
        side, size = of.above if sign > 0 else of.below, abs(x)
        if not size < (side.last - 0.5) * side.step:
            return side.linear_tail
        return holds(sign, round(size / side.step))

    return at


def _holds(function: Function, step: float, centre: int, form: Form) -> bool:
    """True if the piece at a centre gives what a function gives of sizes."""
    at = centre * step
    low, high = max(at - step / 2, form.least), at + step / 2
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
    highest, *others, base = form.packed((first, linear, slope - 2 * bend * middle, bend))

    def errs() -> Iterator[bool]:
        places = [_single(middle + half * end) for end in PIECE]
        for t, exact in zip(places, function([at + t for t in places]), strict=True):
            y = highest
            for c in others:
                y = _single(y * t + c)
            y = _single(base + y)
            lost = y == 0 and math.copysign(1.0, exact) != math.copysign(1.0, y)
            yield lost or not abs(y - exact) <= form.most * _unit(exact)

    return not any(errs())


def _side(function: Function) -> HalfGrid:
    """The centres of what a function gives of sizes."""
    tried = dict(zip(TRIES, function(TRIES), strict=True))
    linear_tail = next((end for end in ENDS if _is_linear(tried, end)), None)
    end = linear_tail or ENDS[-1]
    values = function([k * FINEST for k in range(int(min(end, TRIED) / FINEST) + 5)])

    def enough(step: float) -> bool:
        return _left(values, step) <= ENOUGH and all(
            _holds(function, step, k, UNIFORM) for k in range(FIRST)
        )

    step = next(filter(enough, STEPS), FINEST)
    return HalfGrid(step, int(end / step) + 1, linear_tail is not None)


def _is_linear(values: Mapping[float, float], end: float) -> bool:
    """True if a line gives all that lies beyond an end."""
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
    """True if one piece would give what is near its centre."""
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
    return round_to(number, Math.FLOAT)


def _unit(number: float) -> float:
    """The last place of a number, as a float has it."""
    _, exponent = math.frexp(number)
    return math.ldexp(1.0, max(exponent, SUBNORMAL) - DIGITS)


def _bits(number: float) -> int:
    """The bits of the nearest float."""
    return int.from_bytes(struct.pack("<f", _single(number)), "little")


def _float(bits: int) -> float:
    """The float that has some bits."""
    [number] = struct.unpack("<f", bits.to_bytes(4, "little"))
    return float(number)
