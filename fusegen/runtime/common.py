"""The common call of a module's function, of arguments that it has read: kernels on plain tensors."""

from typing import Any, Callable, Optional

import torch
from torch._C import _is_tracing as is_tracing
from torch.autograd import forward_ad

from . import compiled_call, together
from .calls import PLAIN
from .flavour import are_transforms_active, is_dynamo_compiling


def call_of(kernels: Any, otherwise: "Optional[Callable[..., Any]]" = None) -> "Callable[..., Any]":
    """Return a function of tensors and scalars that runs the kernels of an `Activation`.

    Args:
        kernels: these.
        otherwise: what runs where no kernel takes the tensors; by itself PyTorch's own operations.
    """
    other = otherwise or kernels.without_kernel
    by_pytorch = otherwise or kernels.by_pytorch
    counts = kernels.inputs, kernels.alike, kernels.results
    made = {(1, 1, 1): _unary, (2, 2, 1): _binary}.get(counts, _several)
    run = compiled_call.in_front(kernels, made(kernels, other, by_pytorch))
    if not kernels.detached:
        return run
    return lambda *arguments: run(*kernels.without_history(arguments))


def _unary(kernels: Any, other: "Callable[..., Any]", by_pytorch: "Callable[..., Any]") -> Any:
    dtypes, forward, is_grad_enabled = kernels.dtypes, kernels.forward, torch.is_grad_enabled
    widens = kernels.autocasts

    def run(x: Any, *params: float) -> Any:
        if x.__class__ not in PLAIN or x.dtype not in dtypes:
            return other(x, *params)
        if widens and x.is_cuda:
            x = widened(x)
        if is_dynamo_compiling() or is_tracing():
            return kernels.operator(x, *params)
        if are_transforms_active() or forward_ad._current_level >= 0:
            return kernels.transforming(x, *params)
        call = kernels.graded(x) if x.requires_grad and is_grad_enabled() else forward
        result = call(x, *params)
        return by_pytorch(x, *params) if result is None else result

    return run


def _binary(kernels: Any, other: "Callable[..., Any]", by_pytorch: "Callable[..., Any]") -> Any:
    dtypes, forward, is_grad_enabled = kernels.dtypes, kernels.forward, torch.is_grad_enabled
    widens = kernels.autocasts

    def run(x: Any, y: Any, *params: float) -> Any:
        if x.__class__ not in PLAIN or y.__class__ not in PLAIN:
            return other(x, y, *params)
        dtype = x.dtype
        if dtype not in dtypes or y.dtype is not dtype or y.device != x.device:
            return other(x, y, *params)
        if widens and x.is_cuda:
            x, y = widened(x), widened(y)
        if is_dynamo_compiling() or is_tracing():
            return kernels.operator(x, y, *params)
        if are_transforms_active() or forward_ad._current_level >= 0:
            return kernels.transforming(x, y, *params)
        graded = (x.requires_grad or y.requires_grad) and is_grad_enabled()
        result = (kernels.graded(x, y) if graded else forward)(x, y, *params)
        return by_pytorch(x, y, *params) if result is None else result

    return run


def _several(kernels: Any, other: "Callable[..., Any]", by_pytorch: "Callable[..., Any]") -> Any:
    dtypes, forward, is_grad_enabled = kernels.dtypes, kernels.forward, torch.is_grad_enabled
    widens, count, alike = kernels.autocasts, kernels.inputs, kernels.alike
    results = kernels.results

    def run(*arguments: Any) -> Any:
        first, tensors, graded = arguments[0], arguments[:count], False
        if first.__class__ not in PLAIN or first.dtype not in dtypes:
            return other(*arguments)
        dtype, device = first.dtype, first.device
        for tensor in tensors[:alike]:
            if tensor.__class__ not in PLAIN or tensor.dtype is not dtype or tensor.device != device:
                return other(*arguments)
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
        none = result is None or (results > 1 and result[0] is None)
        return by_pytorch(*arguments) if none else result

    return run


def begun(kernels: Any, choose: "Callable[..., Any]") -> "Callable[..., Any]":
    """Return a choice of the call whose gradient is recorded; the first one has both passes built."""

    def first(*tensors: Any) -> Any:
        together.join([kernels], "backward")
        kernels.graded = choose
        return choose(*tensors)

    return first


def widened(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor on CUDA as autocast gives it to an operation that eager computes in float32."""
    return x.float() if x.element_size() == 2 and torch.is_autocast_enabled() else x
