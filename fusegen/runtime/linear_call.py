"""The call of a kernel of linear layers: its memory, and what it takes besides the layer."""

import contextlib
import functools
from typing import Any, Optional

import torch

from .linear_facts import facts


def by_kernel(
    kernel: Any, x: torch.Tensor, weight: torch.Tensor, bias: "Optional[torch.Tensor]", *behind: Any
) -> "Optional[torch.Tensor]":
    """Return what a kernel makes of a layer of matrices that fits; None where its memory could not be had.

    Args:
        kernel: that of the layer, or of it and of what is behind it.
        x: the input.
        weight: of the layer.
        bias: of the layer, if it has one.
        behind: what the kernel takes besides.
    """
    across, along = x.stride()
    with contextlib.suppress(torch.OutOfMemoryError):
        if along != 1 or across % 4 != 0 or across < x.shape[1] or x.data_ptr() % 16 != 0:
            x = _aligned(x)
        added = no_bias(x.device) if bias is None else bias
        made = x.new_empty(x.shape[0], weight.shape[0])
        return made if kernel(weight, x, added, *facts(weight), *behind, made) else None
    return None


@functools.lru_cache(None)
def no_bias(device: torch.device) -> torch.Tensor:
    """Return what stands for a bias where there is none."""
    return torch.empty(0, device=device)


def _aligned(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of a matrix whose rows begin at multiples of 16 bytes."""
    wide = (x.shape[1] + 3) // 4 * 4
    return x.new_empty(x.shape[0], wide)[:, : x.shape[1]].copy_(x)
