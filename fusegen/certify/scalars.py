"""Values of the parameters other than the defaults: 0, negative, tiny and huge, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fusegen.certify import inputs
from fusegen.certify.enclosures import Enclosure
from fusegen.certify.findings import Subject

if TYPE_CHECKING:
    from fusegen.certify.evaluator import Evaluator

VALUES = (
    Fraction(0),
    Fraction(-3, 4),
    Fraction(1, 2**30),
    Fraction(2**30),
)  # every type's op-math has them
MOST_INPUTS, TRIED, UNDEFINED = 2**12, 64, 0.5
Chosen = tuple[tuple[str, float], ...]


def combinations(params: dict[str, Fraction]) -> list[dict[str, Fraction]]:
    """The combinations that are tried: one parameter at a time, and all of them negative."""
    found = [{**params, name: value} for name in params for value in VALUES]
    if len(params) > 1:
        found.append({name: VALUES[1] * (k + 1) for k, name in enumerate(params)})
    return [values for values in found if values != params]


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
    """A thin sample of the judged inputs."""
    points = inputs.sample(subject.program, subject.params, dtype, subject.masks)
    ranges = inputs.judged_ranges(subject.program, subject.assume)
    everywhere = (-float("inf"), float("inf"))
    inside = inputs.within(points, [ranges.get(name, everywhere) for name in subject.program.inputs])
    count = int(inside.sum())
    return tuple(t[inside][:: max(1, -(-count // MOST_INPUTS))] for t in points)


def _is_function(subject: Subject, points: tuple[Tensor, ...]) -> bool:
    """True if the formula is defined at more than half of some points."""
    formula = Enclosure(subject.program, subject.params)
    some = [t[:: -(-len(t) // TRIED)].double().tolist() for t in points]
    undefined = sum(formula(*point)[0].hi != formula(*point)[0].hi for point in zip(*some, strict=True))
    return undefined < UNDEFINED * len(some[0])


def _eager_takes(subject: Subject, device: str, points: tuple[Tensor, ...]) -> bool:
    """True if PyTorch accepts these parameters; celu refuses an alpha of 0."""
    if subject.eager is None:
        return True
    try:
        subject.eager(*(t[:1].to(device) for t in points))
    except (RuntimeError, ValueError, ZeroDivisionError):
        return False
    return True
