"""Linear layers in float32 on CUDA: this file chooses between their kernels and PyTorch's layer."""

from typing import Any, Callable, Optional

import torch
from torch import nn

from . import flavour, linear_operator
from .calls import PLAIN, differentiable, is_symbolic, recorded, transformed
from .flavour import is_compiling, is_traceable_wrapper_subclass
from .holders import is_under_mode, is_watched
from .policy import policy_of
from .thin_operator import on_gpu


def for_kernels(kernels: Any) -> "Callable[[Any, Any], Any]":
    """Return a module's `linear`, which knows the module's policy under torch.compile."""
    return lambda layer, x: linear(layer, x, kernels.compile_policy)


def linear(layer: Any, x: Any, policy: "Optional[str]" = None) -> Any:
    """Return what a linear layer makes of a tensor.

    The kernels compute it in float32 by products in 16 bits, at a smaller error than PyTorch, where this is
    faster and nothing else decides how: a hook, a mode, a subclass, autocast, a permission of TF32.

    Args:
        layer: of a model.
        x: its input.
        policy: that of a module under torch.compile.
    """
    if is_symbolic(x) or not is_known(layer, x) or is_governed(x, policy):
        return layer(x)
    weight, bias = layer._parameters["weight"], layer._parameters["bias"]
    if not is_large(x, weight):
        return layer(x)
    rows = x.reshape(-1, x.shape[-1])
    if is_compiling():
        made = getattr(torch.ops, linear_operator.namespace()).linear(rows, weight, bias)
    elif not linear_operator.fits(rows, weight, bias):
        return layer(x)
    else:
        of, given = linear_operator.kernels(), (rows, weight) if bias is None else (rows, weight, bias)
        made = (of.graded if differentiable(*given) else of.call)(rows, weight, bias)
    return made if x.dim() == 2 else made.view(*x.shape[:-1], made.shape[-1])


def is_known(layer: Any, x: torch.Tensor) -> bool:
    """Return True if a layer is PyTorch's, nobody watches it, and all is in float32 on CUDA."""
    if not flavour.PRODUCTS or not on_gpu(x) or x.dtype != torch.float32 or x.dim() < 2:
        return False
    if x.layout != torch.strided or x.is_nested or layer.__class__ is not nn.Linear or is_watched(layer):
        return False
    own: Any = layer._parameters
    weight, bias = own.get("weight"), own.get("bias")
    matrix = weight is not None and weight.dtype == torch.float32 and weight.dim() == 2
    if not matrix or weight.layout != torch.strided:
        return False
    if is_compiling():  # whose tensors may be fake
        return True
    return all(t is None or t.__class__ in PLAIN for t in (weight, bias))


def is_large(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Return True if a layer may be worth while; an exported program has inputs of other sizes, too."""
    if weight.numel() == 0:
        return False
    exporting = is_compiling() and torch.compiler.is_exporting()
    columns = linear_operator.MOST if exporting else x.numel() // weight.shape[1]
    return linear_operator.is_worth(columns, weight)


def is_governed(x: torch.Tensor, policy: "Optional[str]") -> bool:
    """Return True if something else decides how a layer is computed."""
    if torch.is_autocast_enabled() or recorded():
        return True
    if is_compiling():
        return policy_of(policy) == "decompose" or bool(is_traceable_wrapper_subclass(x))
    return x.__class__ not in PLAIN or transformed() or is_under_mode()
