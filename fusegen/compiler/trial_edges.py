"""Inputs at which a value on the way is about to overflow, where a scaled gradient may be lost.

A sample of several inputs seldom has them. They are found by bisection between two of its points that
differ in one input, one of which has a value beyond some size.
"""

from __future__ import annotations

import random

import numpy as np

from fusegen.compiler.kernel_values import Points, Values
from fusegen.core.method import Pass
from fusegen.numerics.ieee import Column
from fusegen.numerics.roundoff.local import Mask

SEED, MOST, STEPS = 49, 256, 40  # points of an input, and bisections
EXPONENTS = 114.0, 127.9  # of the size that a value reaches


def at_edges(values: Values, which: Pass, sample: Points) -> Points:
    """Return such points of a pass, between those of a sample; none where no value is so large."""
    draw, found = random.Random(SEED), dict[str, list[Column]]({name: [] for name in sample})
    count = len(next(iter(sample.values()))) // 2
    first = {name: column[:count] for name, column in sample.items()}
    steps = len(values.sizes(which, {name: column[:1] for name, column in first.items()}))
    if not steps:
        return {name: np.zeros(0) for name in sample}
    for name, column in sample.items():
        own = np.array([draw.randrange(steps) for _ in range(count)])
        most = np.exp2([draw.uniform(*EXPONENTS) for _ in range(count)])
        ends = [column[:count], column[count : 2 * count]]
        large = [_large(values, which, {**first, name: end}, own, most) for end in ends]
        crossed = np.flatnonzero(large[0] != large[1])[:MOST]
        if not len(crossed):
            continue
        low, high = (np.where(large[0], *each)[crossed] for each in (ends[::-1], ends))
        others = {each: numbers[crossed] for each, numbers in first.items()}
        for _ in range(STEPS):
            middle = low + (high - low) / 2
            far = _large(values, which, {**others, name: middle}, own[crossed], most[crossed])
            low, high = np.where(far, low, middle), np.where(far, middle, high)
        for each, numbers in {**others, name: low}.items():
            found[each].append(numbers.astype(np.float32).astype(float))
    return {name: np.concatenate([np.zeros(0), *columns]) for name, columns in found.items()}


def _large(values: Values, which: Pass, points: Points, own: Column, most: Column) -> Mask:
    """Return where the value on the way that each point has is beyond its size."""
    sizes = values.sizes(which, points)
    large: Mask = sizes[own, np.arange(len(own))] >= most
    return large
