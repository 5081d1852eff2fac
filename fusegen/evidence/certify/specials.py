"""The results at NaN, infinities and zeros, beside eager's and the limits of the formula."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fusegen.core.term import Program
from fusegen.evidence.certify import exact, tried_inputs
from fusegen.evidence.certify.enclosures import Enclosure
from fusegen.evidence.certify.findings import Special, Subject

if TYPE_CHECKING:
    from fusegen.evidence.certify.evaluator import Evaluator

REST = 1  # what the other inputs are
INFINITIES = (math.inf, -math.inf)


def found(evaluator: Evaluator, dtype: torch.dtype) -> list[tuple[Special, ...]]:
    """Return the special inputs of each output; of several tensors one is special at a time."""
    names = evaluator.subject.program.inputs
    rows = [_of_one(evaluator, dtype, k) for k in range(len(names))]
    return [tuple(special for row in rows for special in row[k]) for k in range(1 + len(names))]


def judged(subject: Subject, name: str, dtype: torch.dtype) -> Tensor:
    """Return the special values that an input may have: NaN, and those in its range; 0 of a mask."""
    values = tried_inputs.specials(dtype)
    if name in subject.masks:
        return torch.zeros(1, dtype=dtype)
    low, high = subject.assume.get(name, (-math.inf, math.inf))
    return values[values.isnan() | ((values >= low) & (values <= high))]


def _of_one(evaluator: Evaluator, dtype: torch.dtype, moving: int) -> list[tuple[Special, ...]]:
    names = evaluator.subject.program.inputs
    values = judged(evaluator.subject, names[moving], dtype)
    points = tuple(values if k == moving else torch.full_like(values, REST) for k in range(len(names)))
    given, eager = evaluator.results(points)
    if eager:  # which may give one thing in whole vectors and another in the few elements after them
        vectors = evaluator.results(tuple(t.repeat(64) for t in points))[1]
        same = [~exact.bits_differ(a, b[: len(values)]) for a, b in zip(given, vectors, strict=True)]
        eager = [torch.where(s, g, e) for s, g, e in zip(same, given, eager, strict=True)]
    host = replace(evaluator, device="cpu").results(tuple(t.double() for t in points))[1]
    limits = {v: _limits(evaluator.subject, moving, v) for v in INFINITIES}
    of = names[moving] if len(names) > 1 else ""
    rows: list[tuple[Special, ...]] = []
    for k in range(1 + len(names)):
        real = [limits[v][k] if v in limits else math.nan for v in values.tolist()]
        if host:
            real = [float(host[k][i]) if v == 0 else real[i] for i, v in enumerate(values.tolist())]
        columns = (values, given[k], eager[k] if eager else None, torch.tensor(real, dtype=torch.float64))
        rows.append(_specials(*columns, of))
    return rows


def _specials(
    values: Tensor, given: Tensor, eager: Tensor | None, real: Tensor, of: str
) -> tuple[Special, ...]:
    texts = [
        [repr(x) for x in column.to(values.dtype).tolist()] if column is not None else [""] * len(values)
        for column in (values, given, eager, real)
    ]
    return tuple(Special(x, ours, beside, limit, of) for x, ours, beside, limit in zip(*texts, strict=True))


def _limits(subject: Subject, moving: int, end: float) -> list[float]:
    """Return the limits of value and gradients as one input tends to an infinity and the others stay.

    A gradient by another input is NaN, as nothing is known of its limit.
    """
    program = subject.program
    name = program.inputs[moving]
    rest = {other: Fraction(REST) for other in program.inputs if other != name}
    fixed = Program((name,), (*program.params, *rest), program.lets, program.results)
    value, slope = Enclosure(fixed, {**subject.params, **rest}).limit(end)
    found = [value.hi, *[math.nan] * len(program.inputs)]
    found[1 + moving] = slope.hi
    return found
