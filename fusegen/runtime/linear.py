"""Linear layers in float32 on CUDA: this file chooses between their kernels and PyTorch's layer."""

from typing import Any, Callable, Optional, Tuple

import torch
from torch import nn

from . import flavour, linear_operator
from .calls import PLAIN, differentiable, is_symbolic, is_tracing, recorded, transformed
from .flavour import is_compiling, is_traceable_wrapper_subclass
from .holders import is_under_mode, is_watched
from .policy import policy_of
from .thin_operator import on_gpu

Factors = Tuple[torch.Tensor, torch.Tensor, Optional[torch.Tensor]]


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
    if is_compiling():
        return _recorded(layer, x, policy)
    given = factors(layer, x)
    if given is None:
        return layer(x)
    of, tensors = linear_operator.kernels(), given if given[2] is not None else given[:2]
    return shaped((of.graded if differentiable(*tensors) else of.call)(*given), x)


def factors(layer: Any, x: Any) -> "Optional[Factors]":
    """Return the matrices of a layer that kernels compute: its input, its weight and its bias.

    Where PyTorch's layer runs there are none. A compiler does not ask.
    """
    if x.__class__ not in PLAIN or layer.__class__ is not nn.Linear or not is_known(layer, x):
        return None
    own = layer._parameters
    weight, bias = own["weight"], own["bias"]
    if weight.__class__ not in PLAIN or (bias is not None and bias.__class__ not in PLAIN):
        return None
    if is_tracing() or not weight.numel():
        return None
    if not linear_operator.is_worth(x.numel() // weight.shape[1], weight) or torch.is_autocast_enabled():
        return None
    if transformed() or is_under_mode():
        return None
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    return (rows, weight, bias) if linear_operator.fits(rows, weight, bias) else None


def shaped(made: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the rows that a layer made, in the dimensions of its input."""
    return made if x.dim() == 2 else made.view(*x.shape[:-1], made.shape[-1])


def _recorded(layer: Any, x: Any, policy: "Optional[str]") -> Any:
    """Return the same for a compiler, which records one operator, whose tensors may be fake."""
    governed = is_symbolic(x) or torch.is_autocast_enabled() or recorded()
    if governed or policy_of(policy) == "decompose" or is_traceable_wrapper_subclass(x):
        return layer(x)
    if not is_known(layer, x):
        return layer(x)
    weight, bias = layer._parameters["weight"], layer._parameters["bias"]
    if not is_large(x, weight):
        return layer(x)
    rows = x.reshape(-1, x.shape[-1])
    made = getattr(torch.ops, linear_operator.namespace()).linear(rows, weight, bias)
    return shaped(made, x)


def is_known(layer: Any, x: torch.Tensor) -> bool:
    """Return True if a layer is PyTorch's, nobody watches it, and all is in float32 on CUDA."""
    if not flavour.PRODUCTS or not on_gpu(x) or x.dtype != torch.float32 or x.dim() < 2:
        return False
    if x.layout != torch.strided or x.is_nested or layer.__class__ is not nn.Linear or is_watched(layer):
        return False
    weight: Any = layer._parameters.get("weight")
    matrix = weight is not None and weight.dtype == torch.float32 and weight.dim() == 2
    return bool(matrix and weight.layout == torch.strided)


def is_large(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Return True if a compiled layer may be worth while; an exported program has inputs of any size."""
    if weight.numel() == 0:
        return False
    columns = linear_operator.MOST if torch.compiler.is_exporting() else x.numel() // weight.shape[1]
    return linear_operator.is_worth(columns, weight)
