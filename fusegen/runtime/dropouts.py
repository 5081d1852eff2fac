"""The kernels of a module with dropout, whose masks have the numbers of PyTorch's own generator.

A mask is 0 or 1 for each element, in the dtype of the other tensors; or a `Draw`, which kernels on CUDA
draw themselves. It has the numbers that PyTorch's dropout takes from the generator, in its place and
layout, and leaves the generator in the same state.
"""

import functools
from typing import Any, Callable, Sequence, Tuple

import torch
from torch.nn import functional

from . import common
from .activation import Activation
from .arguments import calling
from .calls import PLAIN, dtype_of, is_symbolic, traced, transformed
from .checks import check
from .drawn import Draw, Drawer, Mask, read

HALVES = (torch.float16, torch.bfloat16)


class Dropouts(Activation):
    """The kernels of a module with dropout.

    Attributes:
        indices: how many of the tensors, the last ones, are masks; they have no gradient.
        passed: the tensors whose gradient is the incoming one, unless they are broadcast.
    """

    def __init__(self, name: str, *, drawn: int, passed: "Tuple[str, ...]" = (), **own: Any) -> None:
        self.passed = passed
        self.indices, self.has_masks = drawn, True
        super().__init__(name, **own)
        self.alike = self.inputs  # masks are converted as the other tensors are
        self.drawer = Drawer(self)
        self.run = self._chosen(common.call_of(self))

    def _chosen(self, reading: "Callable[..., Any]") -> "Callable[..., Any]":
        """Return the call of the kernels that draw masks where there are such masks; else that given."""
        own, end, drawing = self.inputs - self.indices, self.inputs, self.drawer.run

        def run(*arguments: Any) -> Any:
            drawn = any(mask.__class__ is Draw for mask in arguments[own:end])
            return (drawing if drawn else reading)(*arguments)

        return run

    def write(self, out: torch.Tensor, *arguments: Any) -> torch.Tensor:
        """Return the kernel that writes into a given tensor, and reads masks."""
        return super().write(out, *map(read, arguments))

    def dropout(self, p: Any, training: Any, *tensors: Any) -> "Tuple[Any, Any]":
        """Return the mask of a dropout, a tensor or a `Draw`, and the factor of kept elements.

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
            mask = _mask_of(tensors, dtype)
            draw = self.drawer.draw(mask, p)
            if draw is not None:
                return draw, _scale(p, torch.float32)
            empty = torch.empty_strided(mask.shape, mask.stride, dtype=dtype, device=mask.device)
            return DRAWN[mask.device.type](empty, p) if empty.numel() else (empty, 1.0)
        factor = functional.dropout(torch.ones_like(functools.reduce(torch.add, tensors)), p)
        if factor.is_nested:  # which is compared with nothing
            return factor, 1.0
        return (factor != 0).to(dtype), 1.0 / (1.0 - p)


def _mask_of(tensors: "Sequence[torch.Tensor]", dtype: Any) -> Mask:
    """Return a mask that lies as PyTorch lays what it computes of some tensors."""
    first, *others = tensors
    shape = torch.broadcast_shapes(*(t.shape for t in tensors)) if others else first.shape
    if first.is_contiguous() and first.shape == shape:
        return Mask(shape, first.stride(), dtype, first.device)
    like = [torch.empty_strided(t.shape, t.stride(), device="meta") for t in tensors]
    made = functools.reduce(torch.add, like) if others else torch.empty_like(*like)
    return Mask(made.shape, made.stride(), dtype, first.device)


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
    dtype = torch.float32 if empty.dtype in HALVES else empty.dtype
    return torch.native_dropout(empty, p, True)[1].to(empty.dtype), _scale(p, dtype)


DRAWN = {"cpu": _on_cpu, "cuda": _on_cuda}
