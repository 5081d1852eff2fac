"""CUDA's cubic polynomials of float32 results: where they are, and where one gives a function.

runtime/include/cuda/piecewise_uniform.cuh fits them: around each centre of |x|, on either side of 0,
there is one. Its first value is that there, the rest a quadratic, by least squares in the zeros of a
Chebyshev polynomial. This does it in double for one piece. Those of piecewise_segments.cuh have one step on
both sides, and round once.
"""

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from fusegen.core.ir import Math, round_to

Floats = npt.NDArray[np.float64]
Function = Callable[[Sequence[float]], Sequence[float]]  # the results of some numbers

NODES = tuple(math.cos((k + 0.5) * math.pi / 4) for k in range(4))
# of a piece from -1 to 1, closer to its ends, where most cancels
PIECE_SAMPLES = np.array([math.sin(k * math.pi / 64) for k in range(-32, 33)])
PRECISION, LEAST_EXPONENT = 24, -125  # bits of a float, and the least exponent of one that has them all


@dataclass(frozen=True, slots=True)
class HalfGrid:
    """The centres on one side of 0."""

    step: float  # from each to the next, the first of which is 0; a power of two
    last: int  # how many steps away the last is, in whose place there is a line
    linear_tail: bool  # whether the line from there on fits the function


@dataclass(frozen=True, slots=True)
class UniformGrid:
    """A grid of centres: one half above 0, the other below it."""

    above: HalfGrid
    below: HalfGrid


@dataclass(frozen=True, slots=True)
class Form:
    """The way to store and to compute a polynomial around a centre."""

    most: float  # the ulp that it may err by
    least: float  # the least number that the piece of 0 gives
    # its four coefficients in double as five floats: those of a polynomial, the highest first, and what is
    # added to it
    packed: Callable[[Sequence[float]], Sequence[float]]


def _as_floats(of: Sequence[float]) -> Sequence[float]:
    return (*map(to_float, reversed(of)), -0.0)


def _with_rest(of: Sequence[float]) -> Sequence[float]:
    """Return the low 12 bits of the highest coefficient are the first 12 of what the lowest leaves."""
    first, linear, quadratic, cubic = of
    zero = -0.0 if linear else 0.0
    base, rest = (to_float(first), first - to_float(first)) if first else (zero, zero)
    low = (_bits(rest) + 0x80000) >> 20
    highest = _of_bits(_bits(cubic) & 0xFFFFF000 | low)
    return highest, to_float(quadratic), to_float(linear), _of_bits(low << 20 & 0xFFFFFFFF), base


UNIFORM, SEGMENT = Form(1.75, 0.0, _as_floats), Form(1.25, -math.inf, _with_rest)


def of_one_step(of: UniformGrid, step: float) -> UniformGrid:
    """Return the centres of both sides, with a step that is no larger than theirs."""
    sides = (
        HalfGrid(step, int(side.last * side.step / step), side.linear_tail) for side in (of.above, of.below)
    )
    return UniformGrid(*sides)


def fits(of: UniformGrid, function: Function, form: Form) -> Callable[[float], bool]:
    """Return a predicate that is true of the numbers at which a piece gives a function."""

    @cache
    def holds(sign: float, centre: int) -> bool:
        step = (of.above if sign > 0 else of.below).step
        return piece_fits(lambda sizes: function([sign * size for size in sizes]), step, centre, form)

    def at(x: float) -> bool:
        sign = math.copysign(1.0, x)
        side, size = of.above if sign > 0 else of.below, abs(x)
        if not size < (side.last - 0.5) * side.step:
            return side.linear_tail
        return holds(sign, round(size / side.step))

    return at


def piece_fits(function: Function, step: float, centre: int, form: Form) -> bool:
    """True if the error of the piece at a centre is within its form's bound, for a function of sizes."""
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

    t = _floats(middle + half * PIECE_SAMPLES)
    exact = np.array(function((at + t).tolist()), np.float64)
    y = np.full_like(t, highest)
    with np.errstate(all="ignore"):  # of coefficients that are too large for a float
        for c in others:
            y = _floats(y * t + c)
        return not _are_wrong(_floats(base + y), exact, form.most).any()


def _floats(numbers: Floats) -> Floats:
    """Return the nearest floats."""
    return numbers.astype(np.float32).astype(np.float64)


def _are_wrong(y: Floats, exact: Floats, most: float) -> npt.NDArray[np.bool_]:
    """True where `is_wrong` is."""
    _, exponents = np.frexp(exact)
    near = np.abs(y - exact) <= most * np.ldexp(1.0, np.maximum(exponents, LEAST_EXPONENT) - PRECISION)
    found: npt.NDArray[np.bool_] = ~near | ((y == 0) & (np.signbit(exact) != np.signbit(y)))
    return found


def to_float(number: float) -> float:
    """Return the nearest float."""
    return round_to(number, Math.FLOAT)


def is_wrong(y: float, exact: float, most: float) -> bool:
    """True if the error of a result exceeds so many ulp, or it is NaN or a zero of the other sign."""
    lost = y == 0 and math.copysign(1.0, exact) != math.copysign(1.0, y)
    return lost or not abs(y - exact) <= most * ulp(exact)


def ulp(number: float) -> float:
    """Return the last place of a number, as a float has it."""
    _, exponent = math.frexp(number)
    return math.ldexp(1.0, max(exponent, LEAST_EXPONENT) - PRECISION)


def _bits(number: float) -> int:
    """Return the bits of the nearest float."""
    return int.from_bytes(struct.pack("<f", to_float(number)), "little")


def _of_bits(bits: int) -> float:
    """Return the float that has some bits."""
    [number] = struct.unpack("<f", bits.to_bytes(4, "little"))
    return float(number)
