"""Linear layers in float32 on CUDA: this file chooses between their kernels and PyTorch's layer.

So are convolutions of single pixels, unless a compiler, which lays out images itself, traces the model.
"""

from typing import Any, Callable, Dict, Optional, Tuple

import torch
from torch import nn
from torch._C import _is_tracing as is_tracing

from . import flavour, linear_operator, pixels
from .calls import PLAIN, differentiable, is_symbolic, recorded, transformed
from .channels_last import uses_tf32
from .flavour import is_compiling, is_traceable_wrapper_subclass
from .holders import is_under_mode, is_watched
from .policy import policy_of
from .producers import ALIGNED
from .thin_operator import on_gpu

Factors = Tuple[torch.Tensor, torch.Tensor, Optional[torch.Tensor]]


def for_kernels(kernels: Any) -> "Tuple[Callable[[Any, Any], Any], Callable[..., Tuple[Any, Any]]]":
    """Return a module's `linear`, which knows its policy under torch.compile, and `linear_without_bias`.

    The latter is `without_bias` of a convolution that may be one of single pixels.
    """

    def without_bias(layer: Any, x: Any, lays: Any = None) -> "Tuple[Any, Any]":
        given = None if is_compiling() else factors(layer, x)
        if given is None:
            found: "Tuple[Any, Any]" = kernels.without_bias(layer, x, lays)
            return found
        rows, weight, bias = given
        y = shaped(layer, computed((rows, weight, None)), x)
        return y, y.new_full((), -0.0) if bias is None else bias.view(ALIGNED[x.dim() - 2])

    return lambda layer, x: linear(layer, x, kernels.compile_policy), without_bias


def linear(layer: Any, x: Any, policy: "Optional[str]" = None) -> Any:
    """Return what a linear layer, or a convolution of single pixels, makes of a tensor.

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
    return layer(x) if given is None else shaped(layer, computed(given), x)


def computed(given: Factors) -> torch.Tensor:
    """Return what the kernels make of matrices that fit."""
    of = linear_operator.kernels()
    graded = differentiable(*(given if given[2] is not None else given[:2]))
    made: torch.Tensor = (of.graded if graded else of.call)(*given)
    return made


def factors(layer: Any, x: Any) -> "Optional[Factors]":
    """Return the matrices of a layer that kernels compute: its input, its weight and its bias.

    Where PyTorch's layer runs there are none. A compiler does not ask.
    """
    if x.__class__ not in PLAIN or not is_known(layer, x):
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
    rows: "Optional[torch.Tensor]" = x
    if weight.dim() != 2:
        rows = None if uses_tf32() else pixels.pixels_of(x)
        weight = weight.flatten(1)
    elif x.dim() != 2:
        rows = x.reshape(-1, x.shape[-1])
    return (rows, weight, bias) if rows is not None and linear_operator.fits(rows, weight, bias) else None


def shaped(layer: Any, made: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the rows that a layer made, in the dimensions of its input."""
    if layer.__class__ is not nn.Linear:
        return pixels.images_of(made, x)
    return made if x.dim() == 2 else made.view(*x.shape[:-1], made.shape[-1])


def _recorded(layer: Any, x: Any, policy: "Optional[str]") -> Any:
    """Return the same for a compiler, which records one operator, whose tensors may be fake."""
    governed = is_symbolic(x) or torch.is_autocast_enabled() or recorded()
    if governed or policy_of(policy) == "decompose" or is_traceable_wrapper_subclass(x):
        return layer(x)
    if layer.__class__ is not nn.Linear or not is_known(layer, x):
        return layer(x)
    own: "Dict[str, Any]" = layer._parameters
    weight, bias = own["weight"], own["bias"]
    if not is_large(x, weight):
        return layer(x)
    rows = x.reshape(-1, x.shape[-1])
    made = getattr(torch.ops, linear_operator.namespace()).linear(rows, weight, bias)
    return shaped(layer, made, x)


def is_known(layer: Any, x: torch.Tensor) -> bool:
    """Return True if a layer is PyTorch's, nobody watches it, and all is in float32 on CUDA."""
    if not flavour.PRODUCTS or not on_gpu(x) or x.dtype != torch.float32 or x.dim() < 2:
        return False
    if x.layout != torch.strided or x.is_nested:
        return False
    of_rows = layer.__class__ is nn.Linear
    if not (of_rows or pixels.is_of_pixels(layer)) or is_watched(layer):
        return False
    weight: Any = layer._parameters.get("weight")
    if weight is None or weight.dtype != torch.float32 or weight.layout != torch.strided:
        return False
    return weight.dim() == 2 if of_rows else pixels.fits(layer, x, weight)


def is_large(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Return True if a compiled layer may be worth while; an exported program has inputs of any size."""
    if weight.numel() == 0:
        return False
    columns = linear_operator.MOST if torch.compiler.is_exporting() else x.numel() // weight.shape[1]
    return linear_operator.is_worth(columns, weight)
