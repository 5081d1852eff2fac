"""The promise of 16-bit results of a function of several tensors, at random inputs of every size.

There are too many inputs to try one of every binade. Each input has an ordinary size or any, down to the
least number with all digits: two tiny ones together show that x² + y² underflows. Two inputs that are equal
or opposite show what a sum leaves of a third one, beside which they cancel.
"""

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fusegen.algebra.compose import expanded
from fusegen.algebra.derive import derive
from fusegen.compiler.estimates import Formula
from fusegen.compiler.halves.half_types import HALVES, Half
from fusegen.compiler.halves.misses import evaluated, missed
from fusegen.core.interval import Interval, Point, Truth
from fusegen.core.ir import Kernel
from fusegen.core.method import Pass
from fusegen.numerics.ieee import Column
from fusegen.numerics.reals import Reals
from fusegen.numerics.sample import JUDGED, SEED

POINTS, MOST = 640, 64  # points of a type, and the doubtful ones whose exact values are computed
PAIRS = 24  # points of two inputs that cancel
LEAST, ORDINARY = -100, 3.0  # the least binary exponent, and the usual size


@dataclass(frozen=True)
class Several:
    """The promise of a pass of a function of several tensors, in the 16-bit types of its spec.

    Attributes:
        formula: as declared.
        which: the pass.
        dtypes: the names of the spec's 16-bit types.
        params: a value for each parameter of its kernels.
    """

    formula: Formula
    which: Pass
    dtypes: tuple[str, ...]
    params: Point

    def misses(self, kernel: Kernel) -> list[Point]:
        """The tried points at which a result of a kernel is neither the correct one nor its neighbour."""
        if not set(self.formula.declared.inputs) & set(kernel.inputs):
            return []
        return [point for dtype in self.dtypes for point in self._misses(kernel, HALVES[dtype])]

    def _misses(self, kernel: Kernel, half: Half) -> Iterator[Point]:
        points = self._points(half)
        columns = {
            name: np.array([point[name] for point in points]) for name in self.formula.declared.inputs
        }
        found = evaluated(kernel, half, columns, self.params)
        doubtful = np.flatnonzero(np.any([mask for _, _, mask in found], axis=0))
        for k in doubtful[:: -(-len(doubtful) // MOST) or 1].tolist():
            reals = self._exact(points[k])
            own = [reals[owner] for owner in kernel.owners] if kernel.owners else reals
            pairs = zip(found, own, strict=True)
            if any(
                not math.isnan(real) and missed(float(given[k]), float(lost[k]), real, half)
                for (given, lost, _), real in pairs
                if not math.isinf(given[k])  # eager overflows early, too
            ):
                yield points[k]

    def _exact(self, point: Point) -> Sequence[float]:
        value, slopes, incoming = self._reals
        given = {**self.formula.params, **point}
        found = value(given)
        if self.which is Pass.FORWARD:
            return found
        several = slopes({**given, incoming: 1.0})
        return [math.nan] * len(several) if math.isnan(found[0]) else several

    @cached_property
    def _reals(self) -> tuple[Reals, Reals, str]:
        """The value and the slopes over the real numbers, and the name of the incoming gradient."""
        value = expanded(self.formula.declared)
        gradient = derive(value)
        return Reals(value), Reals(gradient), gradient.inputs[0]

    def _points(self, half: Half) -> Sequence[Mapping[str, float]]:
        draw = random.Random(SEED)
        names = self.formula.declared.inputs
        count = POINTS + PAIRS * math.comb(len(names), 2)
        rows = [[self._number(draw, half, name) for name in names] for _ in range(count)]
        points = [dict(zip(names, row, strict=True)) for row in rows]
        pairs = itertools.chain.from_iterable([pair] * PAIRS for pair in itertools.combinations(names, 2))
        for (one, other), point in zip(pairs, points[POINTS:], strict=True):
            point[other] = self._inside(draw.choice((-1, 1)) * point[one], half, other)
        return points

    def _number(self, draw: random.Random, half: Half, name: str) -> float:
        """Return a number of a type within the range of an input."""
        if isinstance(self._range(name), Truth):
            return float(draw.random() < 0.5)
        any_size = draw.choice((-1, 1)) * 2.0 ** draw.uniform(max(LEAST, half.least + half.digits), 13)
        return self._inside(draw.choice((any_size, draw.gauss(0.0, ORDINARY))), half, name)

    def _inside(self, x: float, half: Half, name: str) -> float:
        """Return the nearest number of a type within the range of an input; a truth value stays one."""
        interval = self._range(name)
        if isinstance(interval, Truth):
            return float(x > 0)
        number: Column = np.array([float(min(max(x, interval.low), interval.high))])
        unit = half.unit(number)
        return float((np.rint(number / unit) * unit)[0])

    def _range(self, name: str) -> Interval:
        return self.formula.assume.get(name, Interval(-JUDGED, JUDGED))
