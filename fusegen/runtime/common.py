"""The common call of a module's function, of arguments that it has read: kernels on plain tensors."""

from typing import Any, Callable

import torch

from .calls import PLAIN, forward_ad, is_tracing
from .flavour import are_transforms_active, is_dynamo_compiling


def call_of(kernels: Any) -> "Callable[..., Any]":
    """A function of tensors and scalars that runs the kernels of an `Activation`."""
    return _unary(kernels) if kernels.inputs == 1 else _several(kernels)


def _unary(kernels: Any) -> "Callable[..., Any]":
    dtypes, forward, is_grad_enabled = kernels.dtypes, kernels.forward, torch.is_grad_enabled
    widens = kernels.autocasts

    def run(x: Any, *params: float) -> Any:
        if x.__class__ not in PLAIN or x.dtype not in dtypes:
            return kernels.without_kernel(x, *params)
        if widens and x.is_cuda:
            x = widened(x)
        if is_dynamo_compiling() or is_tracing():
            return kernels.operator(x, *params)
        if are_transforms_active() or forward_ad._current_level >= 0:
            return kernels.transforming(x, *params)
        call = kernels.graded(x) if x.requires_grad and is_grad_enabled() else forward
        result = call(x, *params)
        return kernels.by_pytorch(x, *params) if result is None else result

    return run


def _several(kernels: Any) -> "Callable[..., Any]":
    dtypes, forward, is_grad_enabled = kernels.dtypes, kernels.forward, torch.is_grad_enabled
    widens, count = kernels.autocasts, kernels.inputs

    def run(*arguments: Any) -> Any:
        first, tensors, graded = arguments[0], arguments[:count], False
        if first.__class__ not in PLAIN or first.dtype not in dtypes:
            return kernels.without_kernel(*arguments)
        dtype, device = first.dtype, first.device
        for tensor in tensors:
            if tensor.__class__ not in PLAIN or tensor.dtype is not dtype or tensor.device != device:
                return kernels.without_kernel(*arguments)
            if tensor.requires_grad:
                graded = True
        if widens and first.is_cuda:
            tensors = tuple(map(widened, tensors))
            arguments = tensors + arguments[count:]
        if is_dynamo_compiling() or is_tracing():
            return kernels.operator(*arguments)
        if are_transforms_active() or forward_ad._current_level >= 0:
            return kernels.transforming(*arguments)
        call = kernels.graded(*tensors) if graded and is_grad_enabled() else forward
        result = call(*arguments)
        return kernels.by_pytorch(*arguments) if result is None else result

    return run


def widened(x: torch.Tensor) -> torch.Tensor:
    """A tensor on CUDA as autocast gives it to an operation that eager computes in float32."""
    return x.float() if x.element_size() == 2 and torch.is_autocast_enabled() else x
