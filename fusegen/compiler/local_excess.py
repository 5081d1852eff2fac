"""The contract at single points: where a kernel's estimated error exceeds the budget, and eager's there.

The estimates of both are compared point by point. As they change quickly next to a zero, a point that
exceeds is judged by the largest errors in the box around it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fusegen.compiler.estimates import Formula
from fusegen.core import budget
from fusegen.core.facts import Excess
from fusegen.core.interval import Point
from fusegen.core.ir import Kernel, operations
from fusegen.core.ops import TURNS
from fusegen.core.targets import Device
from fusegen.numerics.ieee import Column
from fusegen.numerics.roundoff import NORMAL, Errors
from fusegen.numerics.roundoff.results import NEAR_LARGEST
from fusegen.numerics.sample import IN_BOX, Sample, Tried

SUSPECTS = 24  # points that are judged by their boxes, those that exceed the contract by most

Estimated = Callable[[Formula], Errors]  # the errors of a kernel at the points of a formula
Allowed = Callable[[Formula], Column]  # the errors that it may have, by point and result


def tolerated(kernel: Kernel) -> Allowed:
    """Return the errors up to which float is a method: the budget, or eager's there if that is larger.

    Of several tensors twice eager's, as `certify` judges a box. Of one tensor eager's and two roundings, as
    long as digits are left; where double costs little, as long as eager is a yardstick. Of sines of turns,
    whose arguments are exact in double, the budget alone.
    """
    return _tolerated(kernel, budget.OF_A_BOX)


def as_eager(kernel: Kernel) -> Allowed:
    """Return the errors of eager, or the budget: of several tensors, not twice as large."""
    return _tolerated(kernel, 1.0)


def _tolerated(kernel: Kernel, of_a_box: float) -> Allowed:
    found = operations(kernel)
    if not TURNS.isdisjoint(found):
        return _allowed(kernel, 0.0, budget.FLOAT_ENOUGH[kernel.device.like])
    if kernel.device.like is Device.CPU and budget.IN_LIBRARY.isdisjoint(found):
        return _allowed(kernel, budget.NO_YARDSTICK, budget.FLOAT_ENOUGH[Device.CPU], of_a_box)
    return _allowed(kernel, budget.ALL_LOST, budget.ALL_LOST, of_a_box)


def contract(kernel: Kernel) -> Allowed:
    """Return the errors that the contract allows: the budget alone where eager is no yardstick."""
    return _allowed(kernel, budget.NO_YARDSTICK, budget.FLOAT_ENOUGH[kernel.device.like])


def _allowed(
    kernel: Kernel,  # its kernel in float
    # eager's error from which on a function of one tensor is allowed another, unless the result is so large
    # that both overflow
    no_yardstick: float,
    instead: float,  # that one
    of_a_box: float = budget.OF_A_BOX,  # of eager's error, what a function of several tensors is allowed
) -> Allowed:
    least = budget.FLOAT_ENOUGH[kernel.device.like]

    def allowed(formula: Formula) -> Column:
        eager = formula.eager_at(kernel)
        if len(formula.declared.inputs) > 1 and no_yardstick:
            return np.maximum(least, eager * of_a_box)
        large = np.abs(np.array(formula.sample(kernel).reals)) > NEAR_LARGEST
        fails = (eager >= no_yardstick) & ~large
        return np.where(fails, instead, np.maximum(least, eager + 2 * budget.ROUNDING_ULP))

    return allowed


def exceeding(estimated: Estimated, allowed: Allowed, formula: Formula) -> npt.NDArray[np.bool_]:
    """The points of a formula's sample at which an error alone exceeds what is allowed, by result."""
    found: npt.NDArray[np.bool_] = estimated(formula).columns > allowed(formula)
    return found


def excess(formula: Formula, kernel: Kernel, estimated: Estimated, allowed: Allowed) -> Excess | None:
    """Return the worst box in which a kernel's estimated errors exceed those allowed; None if none does."""
    own, most = estimated(formula), allowed(formula)
    with np.errstate(invalid="ignore"):
        ratio = np.where(own.columns > most, own.columns / most, 0.0).max(axis=1)
    worst = [int(place) for place in np.argsort(-ratio, kind="stable")[:SUSPECTS] if ratio[place]]
    if not worst:
        return None
    names = formula.declared.inputs
    centres = tuple(tuple((name, own.points[place][name]) for name in names) for place in worst)
    near = replace(formula, tried=Tried(around=centres))
    return in_boxes(near.sample(kernel), estimated(near), near.eager_at(kernel), allowed(near))


def in_boxes(
    sample: Sample,  # the points of the boxes, with exact results
    found: Errors,  # the errors of a kernel
    eager: Column,  # those of eager's operations, by point and result
    allowed: Column,  # the errors that the kernel may have
) -> Excess | None:
    """Return the first box whose largest error exceeds what is allowed in it; none without such a box."""
    errors, limits, eagers = (_boxes(each).max(axis=1) for each in (found.columns, allowed, eager))
    signs = _boxes(np.sign(np.array(sample.reals)))
    turns = signs.min(axis=1) != signs.max(axis=1)  # next to a zero eager is the yardstick
    limits = np.where(turns, np.maximum(limits, eagers + 2 * budget.ROUNDING_ULP), limits)
    for box in np.argwhere((errors > limits).any(axis=1))[:, 0]:
        result = int(np.argmax(np.where(errors[box] > limits[box], errors[box], 0.0)))
        place = box * (IN_BOX + 1) + int(np.argmax(_boxes(found.columns)[box, :, result]))
        return Excess(found.at(place, result), float(eagers[box, result]))
    return None


def _boxes(columns: Column) -> Column:
    found: Column = columns.reshape(-1, IN_BOX + 1, columns.shape[1])
    return found


def is_subnormal(point: Point, inputs: Sequence[str]) -> bool:
    """Return True if one of several tensors is subnormal in float."""
    return len(inputs) > 1 and any(0 < abs(point[name]) < NORMAL for name in inputs)
