"""Broadcast operands, sizes around each switch of kernels, and special values together."""

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fusegen.core import launch
from fusegen.evidence.certify.findings import Function
from fusegen.evidence.certify.relations.trial import (
    COUNT,
    SIDE,
    Case,
    Compared,
    Trial,
    compared,
    mismatches,
)
from fusegen.evidence.certify.slopes import Points, differentiated

EPSILONS = 8  # of the sum of absolute values, by which a reduced gradient may differ from the exact sum
ORDINARY = 1.3  # a number that is broadcast is the point next to it
LARGE = 2**20
BITMASK = 2**22  # elements from which the gradient of a CUDA kernel may read a bitmask
MOST_SPECIAL = 3  # inputs that are special at once; others are ordinary
LEAST_MEMORY = 64  # tensors of one size that fit in a device's memory

SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "a row": lambda t: t[:SIDE],
    "a column": lambda t: t[:SIDE].view(SIDE, 1),
    "a number": lambda t: t[(t.double() - ORDINARY).abs().argmin()],
    "one element": lambda t: t[(t.double() - ORDINARY).abs().argmin()].view(1, 1),
    "an expanded row": lambda t: t[:SIDE].expand(SIDE, SIDE),
}

ARRANGED: dict[int, Callable[[Tensor], Tensor]] = {  # by the dimensions in memory
    1: lambda t: t,
    2: lambda t: t.t(),
    4: lambda t: t.permute(0, 3, 1, 2),
}


def broadcast(trial: Trial) -> Iterator[Case]:
    """Broadcast each input of several against the others."""
    if len(trial.points) == 1:
        return
    for (k, name), (what, shape) in itertools.product(enumerate(trial.names), SHAPES.items()):
        tensors = tuple(shape(t) if i == k else t.view(SIDE, SIDE) for i, t in enumerate(trial.points))
        yield f"{name} is {what}", partial(_broadcast, tensors)
    for k, name in enumerate(trial.names):
        yield f"{name} is shared by vmap", partial(_shared, k)


def _broadcast(tensors: Points, trial: Trial) -> Iterator[Compared]:
    """Compare with a call of the same elements in tensors of one shape."""
    whole = tuple(t.expand(SIDE, SIDE).contiguous() for t in tensors)
    want, got = differentiated(trial.function, whole), differentiated(trial.function, tensors)
    with torch.no_grad():
        yield from compared(trial, (trial.function(*tensors),), want, None)
    for name, ours, full, given in zip(trial.outputs, got, want, (whole[0], *tensors), strict=True):
        if given.shape == full.shape:
            yield Compared(name, mismatches(ours, full), None)
        else:
            yield Compared(name, _sum_differs(ours, full, given), None)


def _shared(k: int, trial: Trial) -> list[Compared]:
    """Compare under vmap over the rows of all inputs but one, of which every row takes the same."""

    def of_row(*rows: Tensor) -> Points:
        found: Any = torch.func.vjp(trial.function, *rows)
        y, pull = found
        return (y, *pull(torch.ones_like(y)))

    tensors = tuple(t[:SIDE] if i == k else t.view(SIDE, SIDE) for i, t in enumerate(trial.points))
    whole = tuple(t.expand(SIDE, SIDE).contiguous() for t in tensors)
    dims = tuple(None if i == k else 0 for i in range(len(tensors)))
    results: Points = torch.func.vmap(of_row, dims)(*tensors)
    return compared(trial, results, differentiated(trial.function, whole), None)


def _sum_differs(got: Tensor, parts: Tensor, given: Tensor) -> Tensor:
    """Return a mask of reduced gradients that are not near the sum of their parts."""
    if got.shape != given.shape:
        return torch.ones_like(given, dtype=torch.bool)
    exactly, size = (t.sum_to_size(given.shape) for t in (parts.double(), parts.double().abs()))
    info = torch.finfo(got.dtype)
    near = (got.double() - exactly).abs() <= EPSILONS * info.eps * size + parts.numel() * info.tiny
    return ~near & (size < info.max / 2)


def sizes(trial: Trial) -> Iterator[Case]:
    """Repeat the points until a tensor has each size at which other kernels or launches may take over."""
    for count in (LARGE, LARGE + 7, *_launched(trial)):
        yield f"{count:,} elements", partial(_repeated, (count,))
    rows = LARGE // 2**10 + 1
    yield f"{rows * 2**10:,} elements transposed", partial(_repeated, (2**10, rows))
    if len(trial.points) > 1:
        yield f"{trial.names[-1]} repeated along {LARGE:,} elements", _row_of_large
    if trial.device.type == "cuda":
        yield f"{BITMASK:,} elements of images", partial(_repeated, (2**6, 2**5, 2**5, 2**6))
        if "inplace" in trial.keywords:
            yield f"{BITMASK:,} elements in place", _large_in_place


def _launched(trial: Trial) -> list[int]:
    """Return the sizes on CUDA around which the launch table or the kernel changes."""
    if trial.device.type != "cuda":
        return []
    width = trial.dtype.itemsize
    rows = [rows for (_, _, bits), rows in launch.shipped().rows.items() if bits == 8 * width]
    switches = {row.kib * 2**10 // width for each in rows for row in each if row.kib} | {BITMASK}
    memory = torch.cuda.get_device_properties(trial.device).total_memory
    fit = [size for size in sorted(switches) if size * width * LEAST_MEMORY <= memory]
    return [size + offset for size in fit for offset in (-1, 0, 1)]


def _repeated(shape: tuple[int, ...], trial: Trial) -> Iterator[Compared]:
    """Compare a large tensor of repeated points; of two dimensions transposed, of four in channels_last."""
    count = math.prod(shape)
    index, *tensors = (
        ARRANGED[len(shape)](column.repeat(-(-count // COUNT))[:count].view(shape))
        for column in (torch.arange(COUNT, device=trial.device), *trial.points)
    )
    with torch.no_grad():
        yield from trial.same((trial.function(*tensors),), index)
    yield from trial.same(differentiated(trial.function, tuple(tensors)), index)


def _row_of_large(trial: Trial) -> Iterator[Compared]:
    """Compare a large tensor of which the last input is a row, whose gradient is a sum of equal parts."""
    rows = LARGE // COUNT
    *others, row = trial.points
    value, *slopes = differentiated(trial.function, (*(t.repeat(rows, 1) for t in others), row))
    index = torch.arange(COUNT, device=trial.device).repeat(rows, 1)
    yield from trial.same((value, *slopes[:-1]), index)
    parts = trial.expected[-1].repeat(rows, 1)
    yield Compared(trial.outputs[-1], _sum_differs(slopes[-1], parts, row), index[0])


def _large_in_place(trial: Trial) -> Iterator[Compared]:
    leaf = trial.points[0].repeat(BITMASK // COUNT).requires_grad_()
    y = trial.function(leaf.clone(), inplace=True)
    [slope] = torch.autograd.grad(y, (leaf,), torch.ones_like(y))
    yield from trial.same((y, slope), torch.arange(COUNT, device=trial.device).repeat(BITMASK // COUNT))


def specials(trial: Trial) -> Iterator[Case]:
    """Let several inputs be special at once, where PyTorch tells what a NaN gives."""
    if trial.eager is not None:
        yield "NaN in one or more inputs", partial(_nan_lost, trial.eager)
        yield "no NaN in any input", partial(_nan_made, trial.eager)


def _nan_lost(eager: Function, trial: Trial) -> Iterator[Compared]:
    """Compare results that are no NaN though eager makes one of a NaN, and none of a 1 in its place."""
    points, has_nan = _grid(trial)
    ours, theirs = differentiated(trial.function, points), _of_eager(eager, points)
    without = _of_eager(eager, tuple(t.nan_to_num(1, torch.inf, -torch.inf) for t in points))
    index = torch.arange(len(has_nan), device=trial.device)
    for name, got, nan, other in zip(trial.outputs, ours, theirs, without, strict=True):
        yield Compared(name, has_nan & ~got.isnan() & nan & ~other, index, points)


def _nan_made(eager: Function, trial: Trial) -> Iterator[Compared]:
    """Compare results that are NaN though no input is, and eager's are none."""
    points, has_nan = _grid(trial)
    ours, theirs = differentiated(trial.function, points), _of_eager(eager, points)
    index = torch.arange(len(has_nan), device=trial.device)
    for name, got, nan in zip(trial.outputs, ours, theirs, strict=True):
        yield Compared(name, ~has_nan & got.isnan() & ~nan, index, points)


def _grid(trial: Trial) -> tuple[Points, Tensor]:
    """Return every combination of special values in the inputs' ranges, with a mask of those with a NaN."""
    info = torch.finfo(trial.dtype)
    all_ = (torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1.0, -2.5, info.tiny, info.max)
    values = torch.tensor(all_, dtype=trial.dtype, device=trial.device)
    count = min(len(trial.points), MOST_SPECIAL)
    points = [column.flatten() for column in torch.meshgrid(*[values] * count, indexing="ij")]
    points += [torch.ones_like(points[0]) for _ in trial.points[count:]]
    inside = torch.ones_like(points[0], dtype=torch.bool)
    for column, (low, high) in zip(points, trial.assumed, strict=True):
        inside &= column.isnan() | ((column >= low) & (column <= high))
    return tuple(column[inside] for column in points), torch.stack(points).isnan().any(0)[inside]


def _of_eager(eager: Function, points: Points) -> list[Tensor]:
    """Return masks of the NaN that eager gives in whole vectors as in the few elements after them."""
    few, vectors = (differentiated(eager, tuple(t.repeat(n) for t in points)) for n in (1, SIDE))
    return [a.isnan() & b[: len(a)].isnan() for a, b in zip(few, vectors, strict=True)]
