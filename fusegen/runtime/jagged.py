"""Nested tensors of the layout torch.jagged: a call on the values of all parts at once."""

from typing import Any

import torch

from .calls import PLAIN

JAGGED = getattr(torch, "jagged", None)  # since PyTorch 2.2


def is_jagged(tensor: Any) -> bool:
    """Return True if a tensor is a nested one of the jagged layout."""
    return JAGGED is not None and isinstance(tensor, torch.Tensor) and tensor.layout == JAGGED


def on_values(kernels: Any, *arguments: Any) -> Any:
    """The function over the values of jagged tensors, or PyTorch's operations where these do not line up.

    Args:
        kernels: of a module.
        arguments: tensors of which at least one is jagged, and scalars. Those that are jagged have the
            same parts, and the others are broadcast along the parts and within them.
    """
    tensors, params = arguments[: kernels.inputs], arguments[kernels.inputs :]
    like = next(t for t in tensors if is_jagged(t))
    if not all(_lines_up(t, like) for t in tensors):
        return kernels.eager(*arguments)
    values = [t.values() if is_jagged(t) else t for t in tensors]
    return torch.nested.nested_tensor_from_jagged(
        kernels.run(*values, *params),
        like.offsets(),
        lengths=like.lengths(),
        jagged_dim=like._ragged_idx,
        min_seqlen=like._maybe_min_seqlen,
        max_seqlen=like._maybe_max_seqlen,
    )


def _lines_up(tensor: Any, like: Any) -> bool:
    """True if the values of a tensor broadcast with those of a jagged one as the tensors themselves do."""
    dim, place = tensor.dim(), like._ragged_idx
    if is_jagged(tensor):
        return bool(
            dim == like.dim() and tensor._ragged_idx == place and tensor.shape[place] == like.shape[place]
        )
    own = dim - (like.dim() - place)  # the dimension that meets the parts' lengths
    return bool(tensor.__class__ in PLAIN and dim < like.dim() and (own < 0 or tensor.shape[own] == 1))
