"""Rows as a module's functions take them: where they lie, with the numbers of a spec, of channels."""

import math
from typing import Any

import torch
from torch import Tensor

from fusegen.core.row_dimensions import Over
from fusegen.core.spec import Spec
from fusegen.evidence.certify.findings import Function

PIECES = 6  # images of a channel at most


def apart(rows: Tensor) -> Tensor:
    """Return rows whose elements lie apart in memory."""
    return rows.transpose(0, -1).contiguous().transpose(0, -1)


def dropping(function: Function, over: Over | None) -> Function:
    """Return a function of rows without the dimensions of size 1 that its values of rows keep."""
    if over is None or not over.keeps:
        return function

    def call(*arguments: Any) -> Any:
        made = function(*arguments)
        several = isinstance(made, tuple)
        whole = made if several else (made,)
        first = over.first % whole[0].dim()
        own = tuple(range(first, first + over.count if over.count else whole[0].dim()))
        found = tuple(torch.squeeze(t, own) for t in whole)
        return found if several else found[0]

    return call


def with_numbers(function: Function, numbers: dict[str, float], spec: Spec) -> Function:
    """Return a function of rows, of one group each; where all of a tensor is a row, of a tensor each."""
    own = [*numbers.values(), *[1] * bool(spec.over and spec.over.groups)]
    if spec.over and spec.over.of_channel:
        own_dims = [each.along is None for each in spec.tensors]
        return lambda *rows: _rows(
            function(
                *(_channels(t) if wide else t.flatten() for t, wide in zip(rows, own_dims, strict=True)),
                *own,
            )
        )
    if spec.over != Over(0):
        return lambda *tensors: function(*tensors, *own)
    return lambda *rows: torch.stack([function(*row, *own) for row in zip(*rows, strict=True)])


def _channels(rows: Tensor) -> Tensor:
    """Return rows as the channels of some images."""
    pieces = math.gcd(rows.shape[-1], PIECES)
    return rows.reshape(len(rows), pieces, rows.shape[-1] // pieces).movedim(0, 1)


def _rows(images: Tensor) -> Tensor:
    """Return the channels of some images as rows."""
    return images.movedim(1, 0).flatten(1)
