"""Inputs at which a value on the way is about to overflow, where a scaled gradient may be lost.

A sample of several inputs seldom has them. They are found by bisection between two of its points that
differ in one input, one of which has a value beyond some size.
"""

import random
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fusegen.compiler.kernel_values import Points, Values, in_float
from fusegen.core.method import Pass
from fusegen.numerics.ieee import Column
from fusegen.numerics.roundoff.local import Mask

SEED, MOST, STEPS = 49, 256, 40  # points of a pass, and bisections
PASSES = 4  # however many inputs there are
EXPONENTS = 114.0, 127.9  # of the size that a value reaches
Rows = npt.NDArray[np.int64]
Beyond = Callable[[Points, Rows], Mask]  # of points, and the rows of the sample that they come from


def at_edges(values: Values, which: Pass, sample: Points) -> Points:
    """Return such points of a pass, between those of a sample; none where no value is so large."""
    draw, count = random.Random(SEED), len(next(iter(sample.values()))) // 2
    steps = len(values.sizes(which, {name: column[:1] for name, column in sample.items()}))

    def large() -> Beyond:
        own = np.array([draw.randrange(steps) for _ in range(count)])
        most = np.exp2([draw.uniform(*EXPONENTS) for _ in range(count)])
        return lambda points, rows: (
            values.sizes(which, points)[own[rows], np.arange(len(rows))] >= most[rows]
        )

    return crossings(sample, MOST, large) if steps else {name: np.zeros(0) for name in sample}


def crossings(
    sample: Points,  # the points; those of the first half have the other inputs
    most: int,  # points of a pass
    condition: Callable[[], Beyond],  # returns that of a pass
) -> Points:
    """Return floats at which a condition changes as one input does, between points of a sample.

    Each pass moves one input; of more inputs than passes a part of its points moves each of several.
    """
    count = len(next(iter(sample.values()))) // 2
    rows, found = np.arange(count), {name: [np.zeros(0)] for name in sample}
    for group in filter(None, ([*sample][k::PASSES] for k in range(PASSES))):
        moved, beyond = rows % len(group), condition()
        first, second = (
            np.choose(moved, [sample[name][part] for name in group])
            for part in (slice(count), slice(count, 2 * count))
        )

        def at(numbers: Column, rows: Rows, group: list[str] = group, moved: Rows = moved) -> Points:
            others = {name: column[rows] for name, column in sample.items()}
            own = {name: np.where(moved[rows] == k, numbers, others[name]) for k, name in enumerate(group)}
            return {**others, **own}

        met = [beyond(at(end, rows), rows) for end in (first, second)]
        crossed = np.flatnonzero(met[0] != met[1])[:most]
        low, high = (np.where(met[0], *ends)[crossed] for ends in ((second, first), (first, second)))
        for _ in range(STEPS if len(crossed) else 0):
            middle = low + (high - low) / 2
            far = beyond(at(middle, crossed), crossed)
            low, high = np.where(far, low, middle), np.where(far, middle, high)
        for name, numbers in at(low, crossed).items():
            found[name].append(in_float(numbers))
    return {name: np.concatenate(columns) for name, columns in found.items()}
