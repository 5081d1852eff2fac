"""The kernels of a module with dropout, whose masks PyTorch's own generator decides, in front of them.

A mask is 0 or 1 for each element, in the dtype of the other tensors. It has the numbers that PyTorch's
dropout takes from the generator, in its place and layout, and leaves the generator in the same state.
"""

import functools
from typing import Any, Sequence, Tuple

import torch
from torch.nn import functional

from . import common, drawn
from .activation import Activation
from .arguments import calling
from .calls import PLAIN, dtype_of, is_symbolic, traced, transformed
from .checks import check

HALVES = (torch.float16, torch.bfloat16)


class Dropouts(Activation):
    """The kernels of a module with dropout.

    Attributes:
        indices: how many of the tensors, the last ones, are masks; they have no gradient.
    """

    def __init__(self, name: str, *, drawn: int, **own: Any) -> None:
        self.indices = self.masks = drawn
        super().__init__(name, **own)
        self.alike = self.inputs  # masks are converted as the other tensors are
        self.run = common.call_of(self)

    def dropout(self, p: Any, training: Any, *tensors: Any) -> "Tuple[Any, Any]":
        """Return the mask of a dropout, and the scalar by which kept elements are multiplied.

        Args:
            p: the probability of 0.
            training: whether elements are dropped.
            tensors: those that the dropped value is computed of.
        """
        if is_symbolic(*tensors):
            return calling(self.dropout, p, training, *tensors)
        p = self.scalar("p", p)
        range_ = f"dropout probability has to be between 0 and 1, but got {p}"
        check(0.0 <= p <= 1.0, self.name, range_, ValueError)
        check(
            all(isinstance(t, torch.Tensor) for t in tensors), self.name, "a tensor is missing", TypeError
        )
        plain = not (traced() or transformed() or torch._C._len_torch_dispatch_stack())
        plain = plain and all(t.__class__ in PLAIN and not t.is_nested for t in tensors)
        dtype = dtype_of(*tensors)
        if not training or p in (0.0, 1.0):
            kept = 0.0 if training and p == 1.0 else 1.0
            device = tensors[0].device
            return (_one if plain else tensors[0].new_full)((), kept, dtype=dtype, device=device), 1.0
        if plain and tensors[0].device.type in DRAWN:
            empty = _empty_like(tensors, dtype)
            return DRAWN[empty.device.type](empty, p) if empty.numel() else (empty, 1.0)
        factor = functional.dropout(torch.ones_like(functools.reduce(torch.add, tensors)), p)
        if factor.is_nested:  # which is compared with nothing
            return factor, 1.0
        return (factor != 0).to(dtype), 1.0 / (1.0 - p)


def _empty_like(tensors: "Sequence[torch.Tensor]", dtype: Any) -> torch.Tensor:
    """Return a new tensor of the shape and layout that PyTorch gives what it computes of some tensors."""
    first, *others = tensors
    shape = torch.broadcast_shapes(*(t.shape for t in tensors)) if others else first.shape
    if others and not (first.is_contiguous() and first.shape == shape):
        like = [torch.empty_strided(t.shape, t.stride(), device="meta") for t in tensors]
        made = functools.reduce(torch.add, like)
        return torch.empty_strided(made.shape, made.stride(), dtype=dtype, device=first.device)
    return torch.empty_like(first, dtype=dtype)


@functools.lru_cache(maxsize=64)
def _one(shape: "Tuple[int, ...]", value: float, dtype: Any, device: Any) -> torch.Tensor:
    """Return a tensor of one value, of which each dtype and device has one."""
    with torch.inference_mode(False):
        return torch.full(shape, value, dtype=dtype, device=device)


@functools.lru_cache(maxsize=1024)
def _scale(p: float, dtype: Any) -> float:
    """Return the factor of kept elements in a dtype, by the division that PyTorch's dropout does."""
    return torch.ones(1, dtype=dtype).div_(1.0 - p).item()


def _on_cpu(empty: torch.Tensor, p: float) -> "Tuple[torch.Tensor, float]":
    """Return a mask and the factor as on the CPU, where both are of the dtype of the tensors."""
    return empty.bernoulli_(1.0 - p), _scale(p, empty.dtype)


def _on_cuda(empty: torch.Tensor, p: float) -> "Tuple[torch.Tensor, float]":
    """Return a mask and the factor as PyTorch's fused kernel has them: for 16 bits a factor in float."""
    scale = _scale(p, torch.float32 if empty.dtype in HALVES else empty.dtype)
    if drawn.can_draw(empty):
        return drawn.drawn(empty, p), scale
    return torch.native_dropout(empty, p, True)[1].to(empty.dtype), scale


DRAWN = {"cpu": _on_cpu, "cuda": _on_cuda}
