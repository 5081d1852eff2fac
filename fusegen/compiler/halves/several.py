"""The promise of 16-bit results of a function of several tensors, at random inputs of every size.

There are too many inputs to try one of every binade. Each input has an ordinary size or any, down to the
least number with all digits: two tiny ones together show that x² + y² underflows. Two inputs that are equal
or opposite show what a sum leaves of a third one, beside which they cancel. Constants of the formula beside
numbers of any size, subnormal ones too, show what is lost next to a kink or a zero.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from fusegen.algebra.compose import expanded
from fusegen.compiler.estimates import Formula
from fusegen.compiler.halves.half_types import HALVES, Half
from fusegen.compiler.halves.misses import chosen, evaluated, missed, spread
from fusegen.core.interval import Interval, Point, Truth
from fusegen.core.ir import Kernel
from fusegen.core.method import Pass
from fusegen.core.term import Number, walk
from fusegen.numerics.ieee import Column
from fusegen.numerics.roundoff.local import Mask
from fusegen.numerics.sample import JUDGED, SEED

POINTS, MOST = 640, 64  # points of a type, and the doubtful ones whose exact values are computed
PAIRS, MOST_PAIRED = 24, 2048  # points of two inputs that cancel, and of all such pairs
AT_KINKS = 1024  # points with a constant of the formula
LEAST, ORDINARY = -100, 3.0  # the least binary exponent, and the usual size


Choice = Callable[[Column, Mask, Mask], list[int]]  # of places: by what is lost, doubtful ones, kinks


def of_doubtful(_: Column, doubtful: Mask, kinks: Mask) -> list[int]:
    """Return some of the doubtful places."""
    return spread(np.flatnonzero(doubtful), MOST)


def of_all(lost: Column, doubtful: Mask, kinks: Mask) -> list[int]:
    """Return some of the doubtful places and of those at kinks, and those that lose most."""
    return sorted({*chosen(lost, doubtful), *spread(np.flatnonzero(kinks), MOST)})


@dataclass(frozen=True)
class Several:
    """The promise of a pass of a function of several tensors, in the 16-bit types of its spec."""

    formula: Formula  # as declared
    which: Pass  # the pass
    dtypes: tuple[str, ...]  # the names of the spec's 16-bit types
    params: Point  # a value for each parameter of its kernels

    def misses(self, kernel: Kernel) -> list[Point]:
        """The points of any size at which a result is neither the correct one nor its neighbour."""
        return [
            point
            for half, points in self._tried.items()
            for point in self._misses(kernel, half, points[:-AT_KINKS], of_doubtful)
        ]

    def left(self, kernel: Kernel) -> tuple[Point, ...]:
        """Return the same of a kernel that is taken, at kinks, too, and where it loses most."""
        every = (self._misses(kernel, half, points, of_all) for half, points in self._tried.items())
        return tuple(itertools.chain.from_iterable(every))

    def _misses(
        self, kernel: Kernel, half: Half, points: Sequence[Point], choice: Choice
    ) -> Iterator[Point]:
        if not set(self.formula.declared.inputs) & set(kernel.inputs):
            return
        columns = {
            name: np.array([point[name] for point in points]) for name in self.formula.declared.inputs
        }
        found = evaluated(kernel, half, columns, self.params)
        with np.errstate(all="ignore"):
            most = np.max([lost / half.unit(given) for given, lost, *_ in found], axis=0)
        doubtful, kinks = (np.any([row[k] for row in found], axis=0) for k in (2, 3))
        for k in choice(most, doubtful, kinks):
            reals = self.formula.exact.at(self.which, {**self.formula.params, **points[k]})
            own = [reals[owner] for owner in kernel.owners] if kernel.owners else reals
            pairs = zip(found, own, strict=True)
            if any(
                not math.isnan(real) and missed(float(given[k]), float(lost[k]), real, half)
                for (given, lost, *_), real in pairs
                if not math.isinf(given[k])  # eager overflows early, too
                and not (given[k] == real and math.isinf(lost[k]))  # the slope of a root at 0
            ):
                yield points[k]

    @cached_property
    def _tried(self) -> Mapping[Half, Sequence[Point]]:
        """The points that are tried, by type."""
        ranges = tuple(self.formula.assume.items())
        drawn = _Drawn(
            tuple(self.formula.declared.inputs), ranges, self._kinks, repr((ranges, self._kinks))
        )
        return {HALVES[dtype]: _points(drawn, HALVES[dtype]) for dtype in self.dtypes}

    @cached_property
    def _kinks(self) -> tuple[float, ...]:
        """The numbers at which a formula may have a kink or a zero: its constants, and their halves."""
        program = expanded(self.formula.declared)
        parts = itertools.chain.from_iterable(map(walk, program.terms))
        own = {float(part.value) for part in parts if isinstance(part, Number) and abs(part.value) < 2**16}
        return tuple(sorted({0.0, 0.5, 1.0, *own, *(x / 2 for x in own), *self.formula.params.values()}))


@dataclass(frozen=True)
class _Drawn:
    """The names, ranges and constants that decide the points of a formula."""

    names: tuple[str, ...]  # of the inputs
    ranges: tuple[tuple[str, Interval], ...]  # intervals that they lie in
    kinks: tuple[float, ...]  # constants that inputs are next to
    spelled: str  # of ranges and kinks, which tells zeros of either sign apart

    def at_kink(self, draw: random.Random, half: Half) -> Point:
        """Return a point of a constant, and a number as large or of any size; the others are ordinary."""
        point = {name: self.inside(draw.gauss(0.0, ORDINARY), half, name) for name in self.names}
        first, second = draw.sample(self.names, 2)
        constant = draw.choice((-1, 1)) * draw.choice((point[first], *self.kinks))
        point[first] = self.inside(constant, half, first)
        size = draw.choice((point[first], 2.0 ** draw.uniform(half.least, 0)))
        point[second] = self.inside(draw.choice((-1, 1)) * size, half, second)
        return point

    def number(self, draw: random.Random, half: Half, name: str) -> float:
        """Return a number of an ordinary size, or of any; a truth value for a mask."""
        if isinstance(self._range(name), Truth):
            return float(draw.random() < 0.5)
        any_size = draw.choice((-1, 1)) * 2.0 ** draw.uniform(max(LEAST, half.least + half.digits), 13)
        return self.inside(draw.choice((any_size, draw.gauss(0.0, ORDINARY))), half, name)

    def inside(self, x: float, half: Half, name: str) -> float:
        """Return the nearest number of a type within the range of an input; a truth value stays one."""
        interval = self._range(name)
        if isinstance(interval, Truth):
            return float(x > 0)
        return half.nearest(float(min(max(x, interval.low), interval.high)))

    def _range(self, name: str) -> Interval:
        return self._intervals.get(name, Interval(-JUDGED, JUDGED))

    @cached_property
    def _intervals(self) -> Mapping[str, Interval]:
        return dict(self.ranges)


@lru_cache(maxsize=64)
def _points(of: _Drawn, half: Half) -> Sequence[Point]:
    """Return the points of a type, the same for both passes."""
    draw, names = random.Random(SEED), of.names
    each = min(PAIRS, MOST_PAIRED // math.comb(len(names), 2) or 1)
    count = POINTS + each * math.comb(len(names), 2)
    rows = [[of.number(draw, half, name) for name in names] for _ in range(count)]
    points = [dict(zip(names, row, strict=True)) for row in rows]
    pairs = itertools.chain.from_iterable([pair] * each for pair in itertools.combinations(names, 2))
    for (one, other), point in zip(pairs, points[POINTS:], strict=True):
        point[other] = of.inside(draw.choice((-1, 1)) * point[one], half, other)
    return points + [of.at_kink(draw, half) for _ in range(AT_KINKS)]
