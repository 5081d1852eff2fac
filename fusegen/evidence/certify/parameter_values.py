"""The samples of a formula at other values of its parameters, those of `core/scalar_values.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fusegen.core.scalar_values import combinations
from fusegen.evidence.certify import tried_inputs
from fusegen.evidence.certify.enclosures import Enclosure
from fusegen.evidence.certify.findings import Subject

if TYPE_CHECKING:
    from fusegen.evidence.certify.evaluator import Evaluator

MOST_INPUTS, TRIED, UNDEFINED = 2**9, 64, 0.5
Chosen = tuple[tuple[str, float], ...]


def samples(
    evaluator: Evaluator, dtype: torch.dtype
) -> Iterator[tuple[Evaluator, tuple[Tensor, ...], Chosen]]:
    """An evaluator, its points and the values, for each combination at which the formula is a function.

    Eager may refuse a combination, and a formula may be undefined at most points: these are left out.
    """
    if evaluator.subject.with_params is None:
        return
    for values in combinations(evaluator.subject.params):
        subject = evaluator.subject.with_params(values)
        points = _points(subject, dtype)
        other = replace(evaluator, subject=subject)
        if _is_function(subject, points) and _eager_takes(subject, other.device, points):
            yield other, points, tuple((name, float(value)) for name, value in values.items())


def _points(subject: Subject, dtype: torch.dtype) -> tuple[Tensor, ...]:
    points = tried_inputs.judged(subject, dtype)
    return tuple(t[:: max(1, -(-len(t) // MOST_INPUTS))] for t in points)


def _is_function(subject: Subject, points: tuple[Tensor, ...]) -> bool:
    formula = Enclosure(subject.program, subject.params)
    some = [t[:: -(-len(t) // TRIED)].double().tolist() for t in points]
    undefined = sum(formula(*point)[0].hi != formula(*point)[0].hi for point in zip(*some, strict=True))
    return undefined < UNDEFINED * len(some[0])


def _eager_takes(subject: Subject, device: str, points: tuple[Tensor, ...]) -> bool:
    """Return True if PyTorch accepts these parameters; celu refuses an alpha of 0."""
    if subject.eager is None:
        return True
    try:
        subject.eager(*(t[:1].to(device) for t in points))
    except (RuntimeError, ValueError, ZeroDivisionError):
        return False
    return True
