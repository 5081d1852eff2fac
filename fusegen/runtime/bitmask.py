"""Gradients that depend on a bit of each element, which the forward kernel saves for large CUDA tensors."""

from typing import Any, Tuple

import torch

from .calls import transformed

LARGE = 4_194_304  # elements from which a bitmask gains more than it takes to allocate


def in_vectors(x: torch.Tensor) -> bool:
    """Return True if a bitmask goes with a tensor: it has no gaps, and comes in whole 16-byte vectors."""
    dense = x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)
    return dense and x.numel() * x.element_size() % 16 == 0 and x.data_ptr() % 16 == 0


def new_bitmask(x: torch.Tensor, *others: Any) -> torch.Tensor:
    """Return a bitmask without its bits, a byte for each vector."""
    return x.new_empty(x.numel() * x.element_size() // 16, dtype=torch.uint8)


def with_bitmask(x: torch.Tensor, *params: float) -> "Tuple[torch.Tensor, torch.Tensor]":
    """Return the shape of the forward kernel's results with a bitmask, without the elements."""
    return torch.empty_like(x), new_bitmask(x)


def forward(kernels: Any) -> Any:
    """Return the kernel on a large tensor."""
    saves_output = kernels.signature.saved != kernels.signature.tensors

    class BitmaskForward(torch.autograd.Function):
        """The kernel on a large tensor, which keeps in a bitmask what a gradient needs."""

        @staticmethod
        def forward(ctx: Any, x: Any, *params: Any) -> Any:
            output, mask = kernels.forward_masked(x, *params)
            ctx.save_for_backward(output if saves_output else x, mask)
            ctx.params = params
            return output

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            saved, mask = ctx.saved_tensors
            if torch.is_grad_enabled() or transformed():
                gradient = kernels.Backward.apply(grad, saved, *ctx.params)
            else:
                gradient = kernels.backward_masked(grad, saved, *ctx.params, mask)
            return (gradient, *(None for _ in ctx.params))

    return BitmaskForward


def in_place(kernels: Any) -> Any:
    """Return the kernel that writes over a large tensor."""
    gradient = _gradient(kernels)

    class BitmaskInPlace(torch.autograd.Function):
        """The kernel that writes over a large tensor.

        A part of the tensor without elements comes along, for its history. The bitmask is all that is left
        of what was there. Where that lay is read off the tensor, which may be written over again: `data` is
        the tensor without autograd's watch over it.
        """

        @staticmethod
        def forward(ctx: Any, x: Any, before: Any, *params: Any) -> Any:
            mask = kernels.forward_masked_out(x, *params, x)
            ctx.mark_dirty(x)
            ctx.save_for_backward(before, x.data, mask)
            ctx.params = params
            return x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            gone = (None for _ in ctx.params)
            return (gradient.apply(grad, *ctx.saved_tensors, *ctx.params), None, *gone)

    return BitmaskInPlace


def _gradient(kernels: Any) -> Any:
    """Return a gradient from a bitmask."""

    class BitmaskGradient(torch.autograd.Function):
        """A gradient from a bitmask. It is linear in what comes in: differentiated again, it is itself."""

        @staticmethod
        def forward(grad: Any, before: Any, like: Any, mask: Any, *params: Any) -> Any:
            return kernels.backward_by_mask(grad, like, *params, mask)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs[1:4])
            ctx.save_for_forward(*inputs[1:4])
            ctx.params = inputs[4:]

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            before, *others = ctx.saved_tensors  # read once: a checkpoint unpacks a tensor but once
            again = BitmaskGradient.apply(grad, before, *others, *ctx.params)
            return (again, torch.zeros_like(before), None, None, *(None for _ in ctx.params))

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            return BitmaskGradient.apply(tangents[0], *ctx.saved_tensors, *ctx.params)

        @staticmethod
        def vmap(info: Any, in_dims: Any, grad: Any, *others: Any) -> Any:
            return torch.stack([BitmaskGradient.apply(row, *others) for row in grad.unbind(in_dims[0])]), 0

    return BitmaskGradient
