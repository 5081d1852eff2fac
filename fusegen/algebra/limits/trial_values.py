"""Values of the names beside an input, with which the limits at its infinities are tried."""

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence

from fusegen.core.term import ORDINARY

TINY, HUGE = map(float, ORDINARY)
OTHERS = (1.0, -1.0, 0.0, TINY, -TINY, HUGE, -HUGE)  # trial values of the other names
INCOMING = (1.0, -1.0, 2.0**20)  # and of an incoming gradient
SIZES = (2.0**-126, 1e-3, 0.1, 0.4, 0.7, 1.5, 3.0, 6.5, 12.0, 25.0, 90.0, 1e3, 2.0**60, 2.0**126)
FURTHER_OTHERS = (*SIZES, *(-size for size in SIZES))  # to find what a guard changes
SEED, DRAWN = 20261, 32  # of points at which all other names differ
COMBINATIONS = 150  # are all tried, if there are no more
Point = Mapping[str, float]


def varied(values: Mapping[str, Sequence[float]]) -> Iterator[Point]:
    """Points of some names: all combinations of values; of many names, one varies, or all do together."""
    if math.prod(map(len, values.values())) <= COMBINATIONS:
        for each in itertools.product(*values.values()):
            yield dict(zip(values, each, strict=True))
    else:
        yield from ({name: value} for name, several in values.items() for value in several)
        for k in range(len(OTHERS)):
            yield {name: several[k % len(several)] for name, several in values.items()}
    yield from ({name: value} for name in values for value in (-math.inf, math.inf))


def further(names: Mapping[str, object]) -> Iterator[Point]:
    """Points in which one name has a further value, or all have one."""
    chance = random.Random(SEED)
    yield from ({name: value} for name in names for value in FURTHER_OTHERS)
    for _ in range(DRAWN if len(names) > 1 else 0):
        yield {name: chance.choice(FURTHER_OTHERS) for name in names}
