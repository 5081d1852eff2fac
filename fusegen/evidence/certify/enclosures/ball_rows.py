"""Many rows in balls: values and gradients as tensors, to as many bits as they need."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from flint import arb, ctx
from torch import Tensor

from fusegen.evidence.certify.enclosures.power_series import PRECISIONS
from fusegen.evidence.certify.enclosures.row_balls import RowBalls

DOUBLE, BITS = 53, 80  # of a double; and those that are known of a result
WIDE = torch.float64


def values(
    of: RowBalls,  # the program
    # a row for each row of the first, or one for all, whose gradient is their sum then, and whose values
    # may be for several neighbours each
    tensors: Sequence[Tensor],
    incoming: Sequence[Tensor],  # for each result, of each element or of each row, with a dimension more
    dtype: torch.dtype,  # which says how small a number has to be known
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return values and gradients of some rows, as tensors of `hi` and `lo`, and how far double may be off.

    `hi` is NaN where nothing is defined. The third are the radii of balls of 53 bits, 0 where they have no
    end: the most by which the formula, computed in double as it is written, is wrong.
    """
    floor = arb(torch.finfo(dtype).tiny) * arb((1, -BITS))
    found: list[list[tuple[float, float] | None]] = []
    radii: list[Tensor] = []
    for precision in (DOUBLE, *PRECISIONS):
        ctx.prec, ctx.cap = precision, 2
        columns = of.columns(tensors, incoming)
        if precision == DOUBLE:
            radii = [
                torch.tensor([float(ball.rad()) for ball in column], dtype=torch.float64)
                for column in columns
            ]
            continue
        found = [[_pair(ball, floor) for ball in column] for column in columns]
        if all(pair is not None for column in found for pair in column):
            break
    made = [torch.tensor([p or (math.nan, 0.0) for p in column], dtype=WIDE) for column in found]
    return [(t[:, 0], t[:, 1], radius.nan_to_num(0.0, 0.0)) for t, radius in zip(made, radii, strict=True)]


def _pair(ball: arb, floor: arb) -> tuple[float, float] | None:
    """Return a ball as two doubles, unless it is too wide."""
    if ball.rel_accuracy_bits() < BITS and not ball.rad() <= floor:
        return None
    hi = float(ball)
    return hi, float(ball - hi) if math.isfinite(hi) else 0.0
