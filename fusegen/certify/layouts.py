"""Checks that a result depends on its own element only, not on the tensor around it."""

from __future__ import annotations

import torch
from torch import Tensor

from fusegen.certify import exact
from fusegen.certify.findings import Function, Subject
from fusegen.certify.slopes import value_and_slopes

LENGTHS = (*range(1, 70), 127, 129, 1000, 1023, 1025)
PLACES = (0, 1, 3)


def check(subject: Subject, device: str, dtype: torch.dtype) -> None:
    """Refuse a function that overwrites its input, or gives other results the second time.

    Raises:
        ValueError: the function does one of these.
    """
    ordinary = torch.linspace(-4, 4, 4096, dtype=torch.float64).to(device, dtype)
    points = tuple(ordinary.clone() for _ in subject.program.inputs)
    first, second = (value_and_slopes(subject.given, points) for _ in range(2))
    if any(bool(exact.bits_differ(t, ordinary).any()) for t in points):
        raise ValueError("it changes its input")
    if any(bool(exact.bits_differ(a, b).any()) for a, b in zip(first, second, strict=True)):
        raise ValueError("it gives other results the second time")


def changes(function: Function, device: str, points: tuple[Tensor, ...]) -> int:
    """The number of results that change in shorter tensors or at other places in memory."""
    size = min(4096, len(points[0]))
    if size == 0:  # no number of the type lies in the judged range
        return 0
    spread = torch.arange(size) * (len(points[0]) // size)
    some = tuple(t[spread].to(device) for t in points)
    whole = value_and_slopes(function, some)
    slices = [
        slice(place, place + length) for length in LENGTHS for place in PLACES if place + length <= size
    ]
    wrong = 0
    for part in (*slices, slice(1, None, 3)):
        found = value_and_slopes(function, tuple(t[part] for t in some))
        pairs = zip(found, whole, strict=True)
        wrong += sum(int(exact.bits_differ(a, b[part]).sum()) for a, b in pairs)
    return wrong
