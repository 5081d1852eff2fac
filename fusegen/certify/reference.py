"""The comparison of a spec's reference with its formula, before anything else is judged."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fusegen.certify import inputs
from fusegen.certify.enclosures import values
from fusegen.certify.findings import ReferenceMismatch, Subject

# of the largest of the result and the inputs; PyTorch's own kernels of float64 hold 1 / 6 as a float
APART = {torch.float64: 2.0**-22, torch.float32: 2.0**-12}
COUNT, LEAST = 300, 2.0**-126
Gap = tuple[float, tuple[str, ...]]  # how far apart, and the point with both values


@dataclass(frozen=True)
class Found:
    """A mismatch and the dtype that shows it."""

    dtype: str
    mismatch: ReferenceMismatch


def check(subject: Subject, device: str) -> Found | None:
    """Compare the reference with the formula at a few hundred points of each wide dtype.

    Returns:
        The points at which they are further apart than any rounding; nothing where there are none.
    """
    if not subject.reference or subject.eager is None:
        return None
    for dtype in APART:
        gaps = list(_gaps(subject, device, dtype))
        if gaps:
            count, (_, first), (_, worst) = len(gaps), gaps[0], max(gaps)
            return Found(str(dtype).removeprefix("torch."), ReferenceMismatch(count, first, worst))
    return None


def points(subject: Subject, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """A few hundred points of moderate size, in order of the first input."""
    found = inputs.sample(subject.program, subject.params, dtype)
    moderate = (-inputs.MODERATE, inputs.MODERATE)
    ranges = [subject.assume.get(name, moderate) for name in subject.program.inputs]
    inside = torch.nonzero(inputs.within(found, ranges) & inputs.within(found, [moderate] * len(found)))[
        :, 0
    ]
    some = inside[:: max(1, -(-len(inside) // COUNT))]
    return tuple(t[some][found[0][some].argsort()] for t in found)


def _gaps(subject: Subject, device: str, dtype: torch.dtype) -> Iterator[Gap]:
    """The points at which formula and reference differ."""
    at = points(subject, dtype)
    assert subject.eager is not None
    with torch.no_grad():
        got = subject.eager(*(t.to(device) for t in at)).double().cpu()
    rows = list(zip(*(t.double().tolist() for t in at), strict=True))
    real = values(subject.program, subject.params, rows, os.cpu_count() or 1)[0][0]
    for row, exact, theirs in zip(rows, real, got.tolist(), strict=True):
        size = max(abs(exact), *map(abs, row), LEAST)
        gap = abs(theirs - exact) / size
        if math.isfinite(theirs) and math.isfinite(exact) and gap > APART[dtype]:
            yield gap, (*(x.hex() for x in row), exact.hex(), theirs.hex())
