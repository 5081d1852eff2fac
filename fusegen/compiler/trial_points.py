"""The inputs at which kernels are compared with eager's operations: special and finite ones."""

import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from fusegen.compiler.kernel_values import Points, in_float
from fusegen.core.interval import REALS, Interval, Truth
from fusegen.numerics.ieee import Column
from fusegen.numerics.roundoff.graph import LARGEST
from fusegen.numerics.sample import JUDGED

SPECIALS = (math.nan, math.inf, -math.inf, 0.0, -0.0)
ALL = (*SPECIALS, 1.0, -2.5, 2.0**-126, 2.0**65, LARGEST)  # the square of the last but one overflows
TOGETHER, REST = 3, 1.0  # inputs that are special at once, and what the others are
SEED, DRAWN, EACH = 20261, 4096, 4  # points of several inputs; of one input by exponent and sign
TINY, TINY_DRAWN = (-122, -110), 4096  # binary exponents of tiny points, and how many are drawn
ORDINARY = 4.0, 40.0  # the usual size of several inputs, and of one
EXPONENTS, LIMITS = (6, 14), (0.0, math.inf)  # incoming gradients: powers of two up to these, and limits


@dataclass(frozen=True)
class TrialPoints:
    """The points of a formula."""

    names: tuple[str, ...]  # of its inputs
    assume: Mapping[str, Interval]  # intervals that they lie in

    @cached_property
    def rows(self) -> list[tuple[int, float]]:
        """Which one of the inputs is special in `singles`, and what it is."""
        return [(k, x) for k, name in enumerate(self.names) for x in SPECIALS if self._may_be(name, x)]

    @cached_property
    def singles(self) -> Points:
        """Points of which one input is special."""
        return {
            name: np.array([x if k == j else REST for j, x in self.rows])
            for k, name in enumerate(self.names)
        }

    @cached_property
    def grid(self) -> Points:
        """Every combination of special values, with numbers, of the first inputs."""
        values = [[x for x in ALL if self._may_be(name, x)] for name in self.names[:TOGETHER]]
        rows = list(itertools.product(*values, *([REST] for _ in self.names[TOGETHER:])))
        return {name: np.array([row[k] for row in rows]) for k, name in enumerate(self.names)}

    @cached_property
    def finite(self) -> Points:
        """The finite points of the grid."""
        kept = np.isfinite(np.array(list(self.grid.values()))).all(axis=0)
        return {name: column[kept] for name, column in self.grid.items()}

    @cached_property
    def tiny(self) -> Points:
        """Points of sizes at which the low words of products underflow."""
        draw = np.random.default_rng(SEED)
        low, high = TINY
        found = {}
        for name in self.names:
            sizes = 2.0 ** draw.integers(low, high, TINY_DRAWN) * draw.uniform(1, 2, TINY_DRAWN)
            found[name] = self._held(name, in_float(sizes * draw.choice((-1.0, 1.0), TINY_DRAWN)), math.inf)
        return found

    @cached_property
    def sample(self) -> Points:
        """Finite points of every size, in the ranges that are judged."""
        draw, several = random.Random(SEED), len(self.names) > 1
        signed = [sign * 2.0**exponent for exponent in range(-126, 128) for sign in (1.0, -1.0)]
        found = {}
        for name in self.names:
            if several:
                numbers = [draw.choice(signed) * draw.uniform(1, 2) for _ in range(DRAWN // 2)]
            else:
                numbers = [size * draw.uniform(1, 2) for size in signed for _ in range(EACH)]
            ordinary = ORDINARY[not several]
            numbers += [draw.gauss(0.0, ordinary) for _ in range(DRAWN // 2)]
            draw.shuffle(numbers)
            found[name] = self._held(name, in_float(np.array(numbers)), JUDGED if several else math.inf)
        return found

    def incoming(self, count: int) -> list[Column]:
        """Incoming gradients for so many points: powers of two of either sign, 0 and infinity."""
        return [*_powers(count), *(np.full(count, limit) for limit in LIMITS)]

    def _held(self, name: str, numbers: Column, most: float) -> Column:
        interval = self.assume.get(name, Interval(-most, most))
        if isinstance(interval, Truth):
            return (numbers > 0).astype(float)
        return np.clip(numbers, float(interval.low), float(interval.high))

    def _may_be(self, name: str, x: float) -> bool:
        interval = self.assume.get(name, REALS)
        if isinstance(interval, Truth):
            return x == 0.0 and math.copysign(1, x) > 0
        return math.isnan(x) or interval.low <= x <= interval.high


@lru_cache(maxsize=64)
def _powers(count: int) -> tuple[Column, ...]:
    """Return random powers of two of either sign, the same for every formula of so many points."""
    draw = random.Random(SEED)
    found = tuple(
        np.array([draw.choice((-1, 1)) * 2.0 ** draw.randint(-most, most) for _ in range(count)])
        for most in EXPONENTS
    )
    for column in found:
        column.flags.writeable = False
    return found
