"""The inputs that the error estimate tries, with the exact results of the formula.

A function of one tensor is tried at every size a float has; one of several within `JUDGED`, or within the
intervals that the spec assumes. An incoming gradient is 1.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fusegen.core.interval import REALS, Interval, Point, Truth
from fusegen.core.ir import Math, round_to

# of |x|; more densely where functions bend
SIZES = (
    *(m * 2.0**e for e in (*range(-148, -12, 8), *range(8, 128, 8)) for m in (1.0, 1.37)),
    *(m * 2.0**e for e in range(-12, 8) for m in (1.03, 1.17, 1.31, 1.46, 1.62, 1.81)),
)
JUDGED = 1e4  # of several inputs
OTHERS = 1.3  # the other inputs while one is tried
TOGETHER = 256  # points at which all inputs are ordinary numbers
MOST = 2000  # points at which one of several inputs has any size; of many inputs each has fewer
SEED = 20
BOX, IN_BOX = 2.0**-7, 8  # half the width of the box around a point, of each input; further points in it
NEAR_OVERFLOW = tuple(m * 2.0**127 for m in (0.63, 0.93, 1.37, 1.9))  # float overflows at twice these

Reals = Callable[[Point], Sequence[float]]


@dataclass(frozen=True)
class Tried:
    """The numbers that one of the inputs takes."""

    sizes: tuple[float, ...] = SIZES  # their absolute values
    bits: int = 24  # of their significands
    # points whose boxes are tried instead, each a value for each input by name
    around: tuple[tuple[tuple[str, float], ...], ...] = ()


EVERY_SIZE, OF_16_BITS, LARGEST = Tried(), Tried(bits=8), Tried(NEAR_OVERFLOW)


@dataclass(frozen=True)
class Sample:
    """Points and the exact results of a program there."""

    points: tuple[Point, ...]  # a value for each input
    # the exact value of each result at each of them; NaN where it is undefined
    reals: tuple[tuple[float, ...], ...]


def sampled(
    inputs: Sequence[str],  # the names of its inputs
    incoming: str,  # the one that is the incoming gradient, if there is one
    params: Point,  # a value for each of its parameters
    assume: Mapping[str, Interval],  # intervals that inputs lie in
    reals: Reals,  # from values of inputs and parameters to the results over the real numbers
    tried: Tried = EVERY_SIZE,  # what one of its inputs takes
) -> Sample:
    """Return the sample of a program."""
    moving = [name for name in inputs if name != incoming]
    points = [{incoming: 1.0, **point} for point in _points(moving, assume, tried)]
    return Sample(tuple(points), tuple(tuple(reals({**params, **point})) for point in points))


def _points(
    moving: Sequence[str], assume: Mapping[str, Interval], tried: Tried
) -> Iterator[dict[str, float]]:
    if tried.around:
        for centre in tried.around:
            yield from _box(dict(centre), assume)
        return
    signed = (sign * size for sign in (-1.0, 1.0) for size in tried.sizes)
    every = [round_to(_held(x, tried.bits), Math.FLOAT) for x in signed]
    if len(moving) == 1:
        [name] = moving
        interval = assume.get(name, REALS)
        inside = [x for x in every if _inside(x, interval)]
        yield from ({name: x} for x in inside or [_nearest(OTHERS, interval)])
        return
    ranges = {name: assume.get(name, Interval(-JUDGED, JUDGED)) for name in moving}
    others = {name: _nearest(_held(OTHERS, tried.bits), ranges[name]) for name in moving}
    masks = [name for name in moving if isinstance(ranges[name], Truth)]
    numbers = [name for name in moving if name not in masks]
    apart = -(-len(moving) * len(every) // MOST)
    for truth in (1.0, 0.0) if masks else (1.0,):
        chosen = {**others, **dict.fromkeys(masks, truth)}
        for k, name in enumerate(numbers):
            yield from ({**chosen, name: x} for x in every[k % apart :: apart] if _inside(x, ranges[name]))
    draw = random.Random(SEED)
    for _ in range(TOGETHER):
        point = {name: round_to(_held(draw.gauss(0.0, 3.0), tried.bits), Math.FLOAT) for name in moving}
        point = {name: _nearest(x, ranges[name]) for name, x in point.items()}
        yield {**point, **{name: float(point[name] > 0) for name in masks}}


def _box(centre: dict[str, float], assume: Mapping[str, Interval]) -> Iterator[dict[str, float]]:
    """Yield a point, and random ones next to it; masks stay."""
    yield centre
    draw = random.Random(SEED)
    for _ in range(IN_BOX):
        point = {}
        for name, x in centre.items():
            interval, scale = assume.get(name, REALS), 1 + draw.uniform(-BOX, BOX)
            point[name] = x if isinstance(interval, Truth) else _nearest(x * scale, interval)
        yield point


def _held(x: float, bits: int) -> float:
    """Return the nearest number whose significand has so many bits."""
    part, exponent = math.frexp(x)
    return math.ldexp(round(math.ldexp(part, bits)), exponent - bits)


def _inside(x: float, interval: Interval) -> bool:
    return interval.low <= x <= interval.high


def _nearest(x: float, interval: Interval) -> float:
    """Return a number, or the end of an interval that is nearest to it."""
    return round_to(float(min(max(x, interval.low), interval.high)), Math.FLOAT)
