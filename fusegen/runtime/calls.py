"""Properties that a call depends on: those of the tensors, and of PyTorch around it."""

import functools
import warnings
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
from torch import nn
from torch._C import _is_tracing as is_tracing
from torch.autograd import forward_ad
from torch.fx import Proxy

from .checks import check
from .flavour import are_transforms_active, increment_version, is_dynamo_compiling, transforms
from .signature import Signature

PLAIN = (torch.Tensor, nn.Parameter)  # the classes of tensors that kernels take
TRANSFORMS = torch._C._functorch.TransformType
FUNCTIONALIZE = TRANSFORMS.Functionalize
DERIVATIVES = {TRANSFORMS.Grad, TRANSFORMS.Jvp}
DEVICES = {"cpu", "cuda", "meta"}
BATCHED = torch._C._dispatch_key_parse("Batched")


def have_kernel(*tensors: torch.Tensor) -> bool:
    """True if a kernel takes the tensors' layouts on their devices; else an operator returns None."""
    devices = {t.device.type for t in tensors}
    return devices <= DEVICES and all(t.layout == torch.strided and not t.is_nested for t in tensors)


def is_symbolic(*arguments: Any) -> bool:
    """True if torch.fx.symbolic_trace records a call: a Proxy has no dtype, shape or device to ask for."""
    return any(isinstance(argument, Proxy) for argument in arguments)


def dtype_of(*tensors: torch.Tensor) -> "Optional[torch.dtype]":
    """The dtype that PyTorch computes with tensors in: those without dimensions follow the others."""
    shaped = [t.dtype for t in tensors if t.dim()] or [t.dtype for t in tensors]
    return functools.reduce(torch.promote_types, shaped) if shaped else None


def differentiable(*tensors: torch.Tensor) -> bool:
    """Return True if autograd records what is done with the tensors."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor.requires_grad:
                return True
    return False


def alike(out: torch.Tensor, *tensors: torch.Tensor) -> bool:
    """Return True if tensors have the dtype of `out`, and none is a lazy negation."""
    dtype = out.dtype
    for tensor in tensors:
        if tensor.dtype != dtype or tensor.is_neg():
            return False
    return not out.is_neg()


def transformed() -> bool:
    """True if torch.func or forward-mode differentiation is at work, which need the autograd.Function."""
    return bool(are_transforms_active()) or forward_ad._current_level >= 0


def pullback(function: "Callable[..., Any]", *tensors: torch.Tensor) -> "Tuple[Any, Callable[..., Any]]":
    """Return the value of a function, and what takes gradients of it back: to integers none."""
    wide = [k for k, tensor in enumerate(tensors) if tensor.is_floating_point()]

    def of_these(*given: torch.Tensor) -> Any:
        found = dict(zip(wide, given))
        return function(*(found.get(k, tensor) for k, tensor in enumerate(tensors)))

    value, pull, *_ = torch.func.vjp(of_these, *(tensors[k] for k in wide))

    def back(grads: Any) -> "Tuple[Any, ...]":
        found = dict(zip(wide, pull(grads)))
        return tuple(found.get(k) for k in range(len(tensors)))

    return value, back


def recorded_gradients(
    function: "Callable[..., Any]", tensors: "Sequence[torch.Tensor]", grad: torch.Tensor
) -> "List[Any]":
    """Return the gradients of a function's tensors as autograd records them; None of one without."""
    followed = torch.is_grad_enabled()
    with torch.enable_grad():
        views = [t.view_as(t) for t in tensors]  # since one may be another one, or depend on it
        value = function(*views)
    wanted = [t for t in views if t.requires_grad]
    found = iter(torch.autograd.grad(value, wanted, grad, create_graph=followed))
    return [next(found) if t.requires_grad else None for t in views]


def is_batch(grad: torch.Tensor) -> bool:
    """Return True for several gradients at once, as is_grads_batched gives them without a transform."""
    return torch._C._dispatch_keys(grad).has(BATCHED)


def traced() -> bool:
    """Return True if dynamo or torch.jit.trace is at work."""
    return bool(is_dynamo_compiling() or is_tracing())


def recorded() -> bool:
    """Return True if torch.jit.trace records what is called, a question that dynamo does not know."""
    return not is_dynamo_compiling() and bool(is_tracing())


@functools.lru_cache(None)
def warn_of(module: str, device: str) -> None:
    """Warn, once, that a device has no kernel."""
    warnings.warn(
        f"{module}: no kernel for {device}; PyTorch's own operations run there instead", stacklevel=4
    )


def copy_into(module: str, out: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Return a given tensor, after a result of its shape, dtype and device is copied into it."""
    if out.is_nested or recorded():  # where there is no shape to compare
        return out.copy_(result)
    shapes = f"out has the shape {tuple(out.shape)}, the result {tuple(result.shape)}"
    check(out.shape == result.shape, module, shapes)
    check(out.dtype == result.dtype, module, f"out is {out.dtype}, the result {result.dtype}")
    check(out.device == result.device, module, f"out is on {out.device}, the result on {result.device}")
    if not is_dynamo_compiling() and FUNCTIONALIZE in transforms():  # which has no derivative of a copy
        return out.masked_scatter_(torch.ones_like(out, dtype=torch.bool), result)
    return out.copy_(result)


def bump_version(out: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose elements a kernel has written, and mark it as changed for autograd."""
    if not out.is_inference():
        increment_version(out)
    return out


def batched(
    function: "Callable[..., Any]", in_dims: "Sequence[Any]", arguments: "Sequence[Any]"
) -> "Tuple[Any, Any]":
    """Return the function over one more dimension in front; `in_dims` says where tensors have it."""
    tensors, scalars = _parted(arguments)
    result = function(*torch.broadcast_tensors(*_aligned(in_dims, tensors)), *scalars)
    return result, (0,) * len(result) if isinstance(result, tuple) else 0


def batched_gradients(
    signature: Signature,
    function: "Callable[..., Any]",
    in_dims: "Sequence[Any]",
    arguments: "Sequence[Any]",
) -> "Tuple[Any, Any]":
    """Return the same of the kernel of several gradients, each of which has the shape of its own tensor."""
    tensors, scalars = _parted(arguments)
    dims = in_dims[: len(tensors)]
    count = next(t.shape[d] for t, d in zip(tensors, dims) if d is not None)
    each = [t.expand(count, *t.shape[1:]) for t in _aligned(dims, tensors)]
    result = function(*each, *scalars)
    shapes = [t.shape if d is None else t.movedim(d, 0).shape[1:] for t, d in zip(tensors, dims)]
    owners = signature.owners("backward", shapes)
    if isinstance(result, torch.Tensor):
        return result.reshape(count, *shapes[owners[0]]), 0
    result = tuple(g.reshape(count, *shapes[k]) for g, k in zip(result, owners))
    return result, (0,) * len(result)


def one_by_one(
    function: "Callable[..., Any]", info: Any, dims: "Tuple[Any, ...]", *arguments: Any
) -> "Tuple[Any, int]":
    """Return a function of each of a batch, which are computed one after the other."""
    moved = [a if d is None else a.movedim(d, 0) for a, d in zip(arguments, dims)]
    each = ([a if d is None else a[k] for a, d in zip(moved, dims)] for k in range(info.batch_size))
    return torch.stack([function(*of) for of in each]), 0


def _parted(arguments: "Sequence[Any]") -> "Tuple[Sequence[Any], Sequence[Any]]":
    """Return the tensors of a kernel's arguments and the scalars, which stand behind them."""
    count = sum(isinstance(argument, torch.Tensor) for argument in arguments)
    return arguments[:count], arguments[count:]


def _aligned(in_dims: "Sequence[Any]", tensors: "Sequence[torch.Tensor]") -> "List[torch.Tensor]":
    """Return the tensors with the dimension in front, of length 1 where they have none, and of one rank."""
    rank = max(t.dim() - (d is not None) for t, d in zip(tensors, in_dims))
    moved = [t[None] if d is None else t.movedim(d, 0) for t, d in zip(tensors, in_dims)]
    return [t[(slice(None), *(None,) * (rank + 1 - t.dim()))] for t in moved]
