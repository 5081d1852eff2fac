"""Values of the parameters other than the defaults: a grid for one at a time, and draws of all of them.

A kernel may have other code at some values of its parameters: at the defaults, at 0, or by their sign.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fusegen.evidence.certify import tried_inputs
from fusegen.evidence.certify.enclosures import Enclosure
from fusegen.evidence.certify.findings import Subject

if TYPE_CHECKING:
    from fusegen.evidence.certify.evaluator import Evaluator

SEED = 20261
DRAWS, OCTAVES = 6, 10  # draws of all parameters together, log-uniform within 2**-10 to 2**10
MOST_INPUTS, TRIED, UNDEFINED = 2**9, 64, 0.5
Chosen = tuple[tuple[str, float], ...]


def _held(value: float) -> Fraction:
    """Return the float32 nearest to a value: the op-math of every type has it."""
    return Fraction(struct.unpack("f", struct.pack("f", value))[0])


HALVES = tuple(Fraction(k, 2) for k in range(-6, 7))
SIZES = (_held(0.1), _held(0.01), Fraction(1, 2**30), Fraction(2**30), Fraction(2**33))
VALUES = (*HALVES, *(sign * size for size in SIZES for sign in (1, -1)))


def combinations(params: dict[str, Fraction]) -> list[dict[str, Fraction]]:
    """Return the combinations that are tried: one parameter at a time, then all of them drawn."""
    found = [{**params, name: value} for name in params for value in VALUES]
    draw = random.Random(SEED)
    for _ in range(DRAWS if params else 0):
        found.append(
            {name: draw.choice((1, -1)) * _held(2 ** draw.uniform(-OCTAVES, OCTAVES)) for name in params}
        )
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
