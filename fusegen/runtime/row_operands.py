"""The tensors of a call of rows in the shapes that kernels take."""

import math
from typing import Any, List, Sequence, Tuple

import torch

from .calls import differentiable, traced, transformed
from .holders import is_under_mode


def expanded(kernels: Any, tensors: "Sequence[Any]") -> "Sequence[Any]":
    """Return tensors of the whole shape; features of one row for all stay, where all of them are so."""
    if are_usual(kernels, tensors):
        return tensors
    if kernels.signature.indices:
        return (*expanded_all(kernels, tensors[: kernels.alike]), *tensors[kernels.alike :])
    return expanded_all(kernels, tensors)


def taken(kernels: Any, tensors: "Sequence[Any]") -> "Sequence[Any]":
    """Return tensors of a call as the operators take them."""
    return expanded(kernels, tensors if kernels.views is None else kernels.views.of(tensors))


def are_usual(kernels: Any, tensors: "Sequence[Any]") -> bool:
    """Return True for tensors of one shape, and features that are all of it, or all of that of a row.

    The call in C++ asks the same (RowShapes in compiled_call/arguments.h).
    """
    shape = tensors[0].shape
    row = shape[kernels.over :] or None if kernels.has_one_row else None
    of_features: Any = None
    for is_feature, tensor in zip(kernels.are_features, tensors):
        own = tensor.shape
        if is_feature and of_features is None:
            of_features = row if row and same(own, row) else shape
        if not same(own, of_features if is_feature else shape):
            return False
    return True


def same(own: "torch.Size", other: "torch.Size") -> bool:
    """Return True for equal shapes, without comparing sizes of shapes that differ in their length.

    Where sizes are symbolic, a comparison is a guard, as that a batch has not the number of channels.
    """
    return len(own) == len(other) and own == other


def expanded_all(kernels: Any, tensors: "Sequence[Any]") -> "Sequence[Any]":
    """Return such tensors of which none is an index."""
    shape = torch.broadcast_shapes(*(t.shape for t in tensors))
    row = shape[kernels.first_of_row(len(shape)) :]
    named = [*zip(kernels.are_features, tensors)]
    stays = all(has_one_row(t.shape, row) for is_feature, t in named if is_feature)
    if kernels.by_channel:
        named = _of_one_shape(named)
        first = len(shape) - len(row)
        counts = [t.numel() for is_feature, t in named if is_feature]
        stays = all(count == counts[0] for count in counts)  # a symbolic number has no hash
        stays = stays and all(has_channels(t.shape, shape, first) for is_feature, t in named if is_feature)
    return [
        t if (is_feature and stays) or same(t.shape, shape) else _of_shape(t, shape, row)
        for is_feature, t in named
    ]


def _of_shape(t: Any, shape: "torch.Size", row: "torch.Size") -> Any:
    """Return a tensor of the whole shape, as a view where a gradient or a compiler may ask for one.

    Kernels on CUDA read each element of a row: for a tensor with one value for all of them, as a bias of
    channels, its binding would copy all rows. Here the rows that differ are repeated, which are few.
    """
    if not is_on_gpu(t) or traced() or is_under_mode() or transformed() or differentiable(t):
        return t.expand(shape)
    own = (1,) * (len(shape) - len(t.shape)) + tuple(t.shape)
    front, behind = own[: len(own) - len(row)], own[len(own) - len(row) :]
    is_worth = behind.count(1) == len(row) and math.prod(front) * row.numel() < shape.numel()
    return t.expand(*front, *row).contiguous().expand(shape) if is_worth else t.expand(shape)


def is_on_gpu(t: Any) -> bool:
    """Return True if kernels on CUDA read a tensor."""
    return t.is_cuda is True  # False for a Proxy of torch.fx


def _of_one_shape(named: "List[Tuple[bool, Any]]") -> "List[Tuple[bool, Any]]":
    """Return features of which none has one value where others have one for each channel.

    Kernels read all features at the same places, which a value alone does not have.
    """
    shape = torch.broadcast_shapes(*(t.shape for is_feature, t in named if is_feature))
    return [
        (is_feature, t.expand(shape).contiguous() if is_feature and t.numel() == 1 else t)
        for is_feature, t in named
    ]


def has_one_row(shape: "torch.Size", row: "torch.Size") -> bool:
    """Return True if a tensor of a shape has one row for all."""
    return same(shape[-len(row) :], row) and shape[: -len(row)].numel() == 1


def has_channels(own: "torch.Size", shape: "torch.Size", first: int) -> bool:
    """Return True if neighbours in a row share values of a tensor: see row_channels.h.

    It varies along the first dimensions of a row, and along the last ones of those in front.

    Args:
        own: the shape of the tensor.
        shape: of all.
        first: the first dimension of a row.
    """
    padded = (1,) * (len(shape) - len(own)) + tuple(own)
    varies = [
        (d < first, 1 if size != 1 else 0)  # a number, also where sizes are symbolic
        for d, (size, whole) in enumerate(zip(padded, shape))
        if whole != 1
    ]
    outside, inside = ([own for is_outside, own in varies if is_outside is side] for side in (True, False))
    return outside == sorted(outside) and inside == sorted(inside, reverse=True)
