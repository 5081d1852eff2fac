"""The comparison of a spec's reference with its formula, before anything else is judged."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fusegen.core.spec import Spec
from fusegen.errors import FusegenError, NotAReference, OtherFunction, counted
from fusegen.evidence.certify import tried_inputs
from fusegen.evidence.certify.enclosures import values
from fusegen.evidence.certify.findings import Function, ReferenceMismatch, Subject

# of the largest of the result and the inputs; PyTorch's own kernels of float64 hold 1 / 6 as a float
APART = {torch.float64: 2.0**-22, torch.float32: 2.0**-12}
COUNT, LEAST = 300, 2.0**-126
Gap = tuple[float, tuple[str, ...]]  # how far apart, and the point with both values


@dataclass(frozen=True)
class Found:
    """A mismatch and the dtype that shows it."""

    dtype: str
    mismatch: ReferenceMismatch


def require(spec: Spec, subject: Subject, device: str) -> None:
    """Refuse a reference that is another function than the formula, or none of the spec's tensors.

    Raises:
        OtherFunction, NotAReference: what it is instead.
    """
    found = check(spec, subject, device)
    if found is not None:
        raise other(spec, found.dtype, found.mismatch)


def other(spec: Spec, dtype: str, mismatch: ReferenceMismatch) -> FusegenError:
    """Return the mistake of a reference that is another function in a dtype."""
    (first, real, got), (worst, worst_real, worst_got) = map(_in_decimals, (mismatch.first, mismatch.worst))
    return OtherFunction(
        spec.at("reference"), reference=spec.reference, count=f"{mismatch.count:,}", dtype=dtype,
        first=first, real=real, got=got, worst=worst, worst_real=worst_real, worst_got=worst_got,
    )  # fmt: skip


def check(spec: Spec, subject: Subject, device: str) -> Found | None:
    """Compare the reference with the formula at a few hundred points of each wide dtype.

    Returns:
        The points at which they are further apart than any rounding; nothing where there are none.

    Raises:
        NotAReference: it cannot be called with the spec's tensors, or returns something else.
    """
    if not subject.reference or subject.eager is None:
        return None
    for function in filter(None, (subject.eager, subject.compared)):
        for dtype in APART:
            gaps = list(_gaps(spec, subject, function, device, dtype))
            if gaps:
                count, (_, first), (_, worst) = len(gaps), gaps[0], max(gaps)
                return Found(str(dtype).removeprefix("torch."), ReferenceMismatch(count, first, worst))
    return None


def points(subject: Subject, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return a few hundred points of moderate size, in order of the first input."""
    found = tried_inputs.sample(subject.program, subject.params, dtype, subject.masks)
    moderate = (-tried_inputs.MODERATE, tried_inputs.MODERATE)
    ranges = [subject.assume.get(name, moderate) for name in subject.program.inputs]
    inside = torch.nonzero(
        tried_inputs.within(found, ranges) & tried_inputs.within(found, [moderate] * len(found))
    )[:, 0]
    some = inside[:: max(1, -(-len(inside) // COUNT))]
    return tuple(t[some][found[0][some].argsort()] for t in found)


def _gaps(
    spec: Spec, subject: Subject, function: Function, device: str, dtype: torch.dtype
) -> Iterator[Gap]:
    at = points(subject, dtype)
    got = _results(spec, function, tuple(t.to(device) for t in at))
    rows = list(zip(*(t.double().tolist() for t in at), strict=True))
    real = values(subject.program, subject.params, rows, os.cpu_count() or 1)[0][0]
    for row, exact, theirs in zip(rows, real, got.tolist(), strict=True):
        size = max(abs(exact), *map(abs, row), LEAST)
        gap = abs(theirs - exact) / size
        if math.isfinite(theirs) and math.isfinite(exact) and gap > APART[dtype]:
            yield gap, (*(x.hex() for x in row), exact.hex(), theirs.hex())


def _results(spec: Spec, function: Function, at: tuple[Tensor, ...]) -> Tensor:
    try:
        with torch.no_grad():
            got = function(*(t.clone() for t in at))
    except Exception as error:  # PyTorch's functions raise whatever they like
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise NotAReference(spec.at("reference"), reference=spec.reference, why=why) from None
    if not isinstance(got, Tensor) or got.shape != at[0].shape:
        why = f"of {counted(len(at), 'tensor')} it makes no tensor of their shape"
        raise NotAReference(spec.at("reference"), reference=spec.reference, why=why)
    return got.double().cpu()


def _in_decimals(place: tuple[str, ...]) -> tuple[str, str, str]:
    *point, real, got = (f"{float.fromhex(part):.9g}" for part in place)
    return ", ".join(point) if len(point) == 1 else f"({', '.join(point)})", real, got
