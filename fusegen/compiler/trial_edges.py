"""Inputs at which a value on the way is about to overflow, where a scaled gradient may be lost.

A sample of several inputs seldom has them. They are found by bisection between two of its points that
differ in one input, one of which has a value beyond some size.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fusegen.compiler.kernel_values import Points, Values, in_float
from fusegen.core.method import Pass
from fusegen.numerics.roundoff.local import Mask

SEED, MOST, STEPS = 49, 256, 40  # points of an input, and bisections
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


def crossings(sample: Points, most: int, condition: Callable[[], Beyond]) -> Points:
    """Return floats at which a condition changes as one input does, between points of a sample.

    Args:
        sample: the points; those of the first half have the other inputs.
        most: points of an input.
        condition: returns that of an input.
    """
    count = len(next(iter(sample.values()))) // 2
    first, rows = {name: column[:count] for name, column in sample.items()}, np.arange(count)
    found = {name: [np.zeros(0)] for name in sample}
    for name, column in sample.items():
        beyond, ends = condition(), (column[:count], column[count : 2 * count])
        met = [beyond({**first, name: end}, rows) for end in ends]
        crossed = np.flatnonzero(met[0] != met[1])[:most]
        low, high = (np.where(met[0], *each)[crossed] for each in (ends[::-1], ends))
        others = {each: numbers[crossed] for each, numbers in first.items()}
        for _ in range(STEPS if len(crossed) else 0):
            middle = low + (high - low) / 2
            far = beyond({**others, name: middle}, crossed)
            low, high = np.where(far, low, middle), np.where(far, middle, high)
        for each, numbers in {**others, name: low}.items():
            found[each].append(in_float(numbers))
    return {name: np.concatenate(columns) for name, columns in found.items()}
