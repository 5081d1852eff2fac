"""The local bound of samples, rule C3: boxes around the judged points with large errors.

Of several tensors, or in float64, not all inputs can be tried. Where our error at a point exceeds both
4 ulp and eager's, the largest and the median errors of both are compared on points near it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fusegen.evidence.certify import tried_inputs
from fusegen.evidence.certify.compared import LIMIT, Compared
from fusegen.evidence.certify.findings import Breach, Output

if TYPE_CHECKING:
    from fusegen.evidence.certify.evaluator import Evaluator

SEED = 20261
MOST_BOXES, NEAR = 400, 48  # boxes of an output, those with the largest errors; points in a box
WIDTH = 2.0**-7  # of a box, relative, to either side
FACTOR = 2.0  # on eager's errors, for the chance of a sample


def judged(
    evaluator: Evaluator,  # of the function
    outputs: Sequence[Compared],  # at the points of the sample
    most: int = MOST_BOXES,  # how many boxes of an output are tried
) -> list[tuple[Breach, ...]]:
    """Return what the outputs of a sample break of rule C3.

    Returns:
        For each output the breach, if there is one.
    """
    centres = [_suspects(output, most) for output in outputs]
    tried = torch.tensor(sorted(set(torch.cat(centres).tolist())), dtype=torch.int64)
    if not len(tried):
        return [() for _ in outputs]
    centres_of_boxes = tuple(t[tried] for t in outputs[0].points)
    fixed = [name in evaluator.subject.masks for name in evaluator.subject.program.inputs]
    points = tuple(
        t.repeat_interleave(1 + NEAR) if is_fixed else _near(t, seed)
        for seed, (t, is_fixed) in enumerate(zip(centres_of_boxes, fixed, strict=True), SEED)
    )
    inside, found = tried_inputs.inside(evaluator.subject, points), evaluator.compared(points)
    places = [torch.searchsorted(tried, of) for of in centres]
    return [_breaches(output, inside, place) for output, place in zip(found, places, strict=True)]


def with_breaches(outputs: Sequence[Output], breaches: Sequence[tuple[Breach, ...]]) -> tuple[Output, ...]:
    """Return outputs with more breaches."""
    return tuple(
        replace(output, local=replace(output.local, breaches=(*output.local.breaches, *found)))
        for output, found in zip(outputs, breaches, strict=True)
    )


def _suspects(output: Compared, most: int) -> Tensor:
    """Return the places of the points with errors above 4 ulp and eager's, the largest excess first."""
    bound = output.theirs.clamp(min=LIMIT)
    suspect = torch.nonzero(output.ours > bound)[:, 0]
    order = (output.ours / bound)[suspect].argsort(descending=True, stable=True)
    return suspect[order[:most]]


def _near(centres: Tensor, seed: int) -> Tensor:
    """Return each centre and NEAR numbers of its box; zeros stay zeros, and finite numbers finite."""
    generator = torch.Generator().manual_seed(seed)
    away = torch.rand(len(centres), NEAR, generator=generator, dtype=torch.float64) * 2 - 1
    near = (centres.double()[:, None] * (1 + WIDTH * away)).to(centres.dtype)
    near = torch.where(near.isfinite(), near, centres[:, None])
    return torch.cat([centres[:, None], near], 1).flatten()


def _breaches(output: Compared, inside: Tensor, places: Tensor) -> tuple[Breach, ...]:
    if not len(places):
        return ()
    shape = (-1, 1 + NEAR)
    ours, theirs = (
        torch.where(inside, errors, torch.nan).view(shape)[places]
        for errors in (output.ours, output.theirs)
    )
    most, most_of_eager = (errors.nan_to_num(0.0, posinf=torch.inf).amax(1) for errors in (ours, theirs))
    middle, middle_of_eager = (errors.nanmedian(1).values.nan_to_num(0.0) for errors in (ours, theirs))
    broken = (most > (FACTOR * most_of_eager).clamp(min=LIMIT)) | (
        middle > (FACTOR * middle_of_eager).clamp(min=LIMIT)
    )
    if not broken.any():
        return ()
    score = torch.where(broken, most / most_of_eager.clamp(min=LIMIT), -torch.inf)
    box = int(score.argmax())
    first = int(places[box]) * (1 + NEAR)
    at = first + int(ours[box].nan_to_num(-1.0, posinf=torch.inf).argmax())
    inputs = tuple(float(t[at]).hex() for t in output.points)
    errors = float(most[box]), float(most_of_eager[box])
    return (Breach("C3", int(broken.sum()), len(places), "boxes", *errors, inputs),)
