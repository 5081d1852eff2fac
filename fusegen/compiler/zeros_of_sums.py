"""The inputs next to zeros of sums of several tensors, where what was rounded before cancels.

Roundings decide every digit of such a result, ours and eager's alike, so that the largest usual errors do
not tell which is nearer. Without functions IEEE arithmetic defines both: each operation is rounded, and
the results are compared with the exact ones.
"""

import random
from dataclasses import replace

import numpy as np

from fusegen.compiler.estimates import Formula, with_uniforms
from fusegen.compiler.kernel_values import Unbounded, Values
from fusegen.compiler.local_excess import in_boxes
from fusegen.compiler.trial_edges import PASSES, Beyond, crossings
from fusegen.core import budget
from fusegen.core.facts import Excess
from fusegen.core.interval import Truth
from fusegen.core.ir import Math, operations
from fusegen.core.method import Pass
from fusegen.lower import lower
from fusegen.numerics.roundoff import Errors
from fusegen.numerics.roundoff.graph import FLOAT, IEEE
from fusegen.numerics.roundoff.local import EXACT
from fusegen.numerics.sample import TOGETHER, Tried

SEED, MOST = 49, 24  # points next to zeros, of all inputs
ROUNDED_ONCE = {*IEEE, *EXACT, "quotient", "sqrt", "square", "fma"}  # what IEEE arithmetic defines


def next_to_zeros_of_sums(formula: Formula, values: Values, which: Pass) -> Excess | None:
    """Return the first error of a pass that breaks the contract next to a zero of a sum, if any."""
    kernel = values.kernels[which]
    eager = formula.eager_programs.map(lambda program: lower("eager", program, kernel.device, Math.FLOAT))
    defined = all(ROUNDED_ONCE.issuperset(operations(each)) for each in (*values.kernels, *eager))
    if len(formula.declared.inputs) < 2 or not defined:
        return None
    params = with_uniforms(formula.params, *formula.eager_programs)
    centres = _centres(formula, Unbounded(eager, params), which)
    if not centres:
        return None
    sample = replace(formula, tried=Tried(around=centres)).sample(kernel)
    points = {name: np.array([at[name] for at in sample.points]) for name in formula.declared.inputs}
    given, expected = (of.at(which, points) for of in (values, Values(eager, params)))
    real = np.array(sample.reals)
    with np.errstate(all="ignore"):
        own, theirs = (
            np.abs(np.stack([of[k] for k in given], axis=1) - real) / FLOAT.unit(real)
            for of in (given, expected)
        )
    judged = np.isfinite(theirs) & (real != 0)  # an exact 0 is no matter of digits
    own, theirs = np.where(judged, own, 0.0), np.where(judged, theirs, 0.0)
    found = Errors(tuple(own.T), ([""] * len(real),) * len(given), sample.points)
    allowed = np.maximum(budget.FLOAT_ENOUGH[kernel.device.like], theirs * budget.OF_A_BOX)
    return in_boxes(sample, found, theirs, allowed)


def _centres(formula: Formula, values: Values, which: Pass) -> tuple[tuple[tuple[str, float], ...], ...]:
    """Return points next to zeros of sums: one input is solved for, the others have sampled values."""
    masks = {name for name, interval in formula.assume.items() if isinstance(interval, Truth)}
    points = formula.samples[0].points[-TOGETHER:]
    sample = {name: np.array([point[name] for point in points]) for name in formula.declared.inputs}
    sums = len(values.sums(which, sample))
    draw = random.Random(SEED)
    own = np.array([draw.randrange(max(sums, 1)) for _ in points])

    def positive() -> Beyond:
        return lambda points, rows: values.sums(which, points)[own[rows], np.arange(len(rows))] > 0

    found = crossings(sample, -(-MOST // min(len(sample), PASSES)), positive) if sums else {}
    rows = zip(*(column.tolist() for column in found.values()), strict=True)
    near = (tuple(zip(found, row, strict=True)) for row in rows)
    return tuple(at for at in near if all(x in (0.0, 1.0) for name, x in at if name in masks))[:MOST]
