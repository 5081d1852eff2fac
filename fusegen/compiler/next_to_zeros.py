"""The inputs next to a sign change of a function of one tensor, where an error weighs most.

Eager loses its digits there, so that it is no yardstick (rule C1b), and the usual sample has no such point:
an error that was small in the argument of a zero is large in the result.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from fusegen.compiler.estimates import Formula
from fusegen.compiler.local_excess import Estimated, contract, exceeding
from fusegen.core.facts import Excess
from fusegen.core.ir import Kernel
from fusegen.core.method import Pass
from fusegen.numerics.sample import Tried

# two cells of the contract away from a zero, relative to it: the next cell has eager as its yardstick
AWAY = (1 / 64, 1 / 80)
MOST = 8  # zeros, of a function that has more, as a sine
STEPS = 30  # of a bisection


def next_to_zeros(
    formula: Formula,  # of one tensor
    kernel: Kernel,  # of one result, in float
    estimated: Estimated,  # the errors of the kernel at the points of a formula
) -> Excess | None:
    """Return the largest error of a kernel that breaks the contract next to a zero of its result."""
    which = Pass.BACKWARD if set(kernel.inputs) - set(formula.declared.inputs) else Pass.FORWARD
    near = tried_next_to_zeros(formula, which) if len(formula.declared.inputs) == 1 else None
    if near is None:
        return None
    own = estimated(near)
    over = np.where(exceeding(estimated, contract(kernel), near), own.columns, 0.0)[:, 0]
    point = int(np.argmax(over))
    if not over[point]:
        return None
    return Excess(own.at(point, 0), float(near.eager_at(kernel)[point, 0]))


def tried_next_to_zeros(formula: Formula, which: Pass) -> Formula | None:
    """Return the formula, tried next to the zeros of a result; None if its result has none."""
    sample = formula.samples[which is Pass.BACKWARD]
    [name] = formula.declared.inputs
    if name not in sample.points[0]:  # a gradient read off the output, which has one sign
        return None
    known = sorted((point[name], real) for point, (real,) in zip(sample.points, sample.reals, strict=True))
    changes = [(a, b, y) for (a, y), (b, z) in pairwise(known) if a * b > 0 and y * z < 0]
    if not changes:
        return None

    def function(x: float) -> float:
        return formula.exact.at(which, {**formula.params, name: x})[0]

    zeros = [_zero(function, *change) for change in changes[:: -(-len(changes) // MOST)]]
    sizes = (abs(zero) * side for zero in zeros for away in AWAY for side in (1 - away, 1 + away))
    return replace(formula, tried=Tried(tuple(sizes)))


def _zero(function: Callable[[float], float], low: float, high: float, at_low: float) -> float:
    """Return a zero between two numbers by bisection."""
    for _ in range(STEPS):
        middle = (low + high) / 2
        if function(middle) * at_low > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
