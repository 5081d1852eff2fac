"""Functions of rows: a module's, with rows where they lie, and PyTorch's that a spec names."""

import inspect
import math
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor

from fusegen.core.row_dimensions import Over
from fusegen.core.spec import Spec
from fusegen.evidence.certify import allowed
from fusegen.evidence.certify.findings import Function

PIECES = 6  # images of a channel at most


def apart(rows: Tensor) -> Tensor:
    """Return rows whose elements lie apart in memory."""
    return rows.transpose(0, -1).contiguous().transpose(0, -1)


def dropping(function: Function, over: Over | None, of_rows: Collection[int]) -> Function:
    """Return a function without the dimensions of size 1 that its results that are values of rows keep."""
    if over is None or not over.keeps:
        return function

    def call(*arguments: Any) -> Any:
        made = function(*arguments)
        several = isinstance(made, tuple)
        whole = made if several else (made,)
        first = over.first % whole[0].dim()
        own = tuple(range(first, first + over.count if over.count else whole[0].dim()))
        found = tuple(torch.squeeze(t, own) if k in of_rows else t for k, t in enumerate(whole))
        return found if several else found[0]

    return call


def with_numbers(function: Function, numbers: dict[str, float], spec: Spec) -> Function:
    """Return a function of rows, of one group each; where all of a tensor is a row, of a tensor each."""
    own = [*numbers.values(), *[1] * bool(spec.over and spec.over.groups)]
    if spec.over and spec.over.of_channel:
        own_dims = [each.along is None for each in spec.tensors]

        def of_channels(*rows: Tensor) -> Tensor:
            each = zip(rows, own_dims, strict=True)
            images = function(*(_channels(t) if wide else t.flatten() for t, wide in each), *own)
            return images.movedim(1, 0).flatten(1)

        return of_channels
    if spec.over != Over(0):
        return lambda *tensors: function(*tensors, *own)

    def of_each(*rows: Tensor) -> Any:
        made = [function(*row, *own) for row in zip(*rows, strict=True)]
        several = isinstance(made[0], tuple)
        return tuple(map(torch.stack, zip(*made, strict=True))) if several else torch.stack(made)

    return of_each


def _channels(rows: Tensor) -> Tensor:
    pieces = math.gcd(rows.shape[-1], PIECES)
    return rows.reshape(len(rows), pieces, rows.shape[-1] // pieces).movedim(0, 1)


def widened(function: Function, values_in: Callable[[torch.dtype], torch.dtype]) -> Function:
    """Return a function of tensors in the dtype that values of rows have beside them."""

    def call(*tensors: Tensor) -> Any:
        return function(*(t.to(values_in(t.dtype)) if t.is_floating_point() else t for t in tensors))

    return call


def reference(spec: Spec, over: int, numbers: dict[str, float]) -> Function:
    """Return PyTorch's function of the first tensor, with the others and the numbers by their names."""
    found = allowed.resolved(spec)
    tensors = [each.name for each in spec.tensors]

    def called(first: Tensor, *others: Tensor) -> Tensor:
        dims = -1 if over == -1 else tuple(range(over % first.dim(), first.dim()))
        known: dict[str, Any] = {"dim": dims, "normalized_shape": first.shape[over:], **numbers}
        known |= dict(zip(tensors[1:], others, strict=True))
        if spec.over and spec.over.groups:
            known[spec.over.groups] = 1
        known |= {each.name: known[each.name].flatten() for each in spec.tensors if each.along is not None}
        known |= {each.name: known[each.name].long().flatten() for each in spec.indices}
        known |= {"reduction": "none"} if spec.reduction != "none" else {}
        try:
            names = set(inspect.signature(found).parameters)
        except ValueError:  # of what is no Python
            names = {"dim", *tensors[1:]}
        result: Tensor = found(first, **{name: known[name] for name in names & known.keys()})
        return result.mean(-1) if spec.over and spec.over.is_part else result  # as kernels do of each part

    return called
