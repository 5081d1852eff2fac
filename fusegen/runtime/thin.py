"""Thin convolutions: those of few input channels are one kernel with what comes behind them, on CUDA.

This file chooses between that kernel and PyTorch's convolution; `thin_operator` has the operators.
"""

from typing import Any, Callable, Optional, Sequence

import torch
from torch import nn

from . import thin_build
from .calls import PLAIN, differentiable, is_symbolic, recorded, transformed
from .flavour import is_compiling, is_traceable_wrapper_subclass
from .holders import is_under_mode, is_watched
from .policy import policy_of
from .thin_operator import SIZES, Tensors, are_alike, on_gpu, shape_of

MOST_CHANNELS, MOST_KERNEL, STRIDES = 16, 7, (1, 2)


def for_kernels(kernels: Any) -> "Callable[..., Optional[torch.Tensor]]":
    """A module's `convolved`: what a layer and the kernel behind it give as one; None if they are not one.

    It takes the layer and the arguments of the kernel: the layer's input in place of its output, and None
    in place of its bias.
    """

    def convolved(layer: Any, *arguments: Any) -> "Optional[torch.Tensor]":
        if not kernels.sources.convolution or is_symbolic(*arguments) or not on_gpu(arguments[0]):
            return None
        if kernels.detached:  # of which the convolution, too, records nothing
            return None
        if recorded() or not is_thin(layer):
            return None
        tensors, params = tensors_of(layer, arguments[: kernels.inputs]), arguments[kernels.inputs :]
        if tensors is None or not all(map(is_number, params)) or not are_alike(tensors, kernels.dtypes):
            return None
        whole = (*tensors, *params, *layer.stride, *layer.padding)
        if is_compiling():
            return kernels.convolution(*whole) if is_kept(kernels, tensors) else None
        if is_governed(tensors) or shape_of(tensors, whole[-SIZES:]) is None:
            return None
        if not thin_build.is_ready(kernels):
            return None
        call = kernels.Convolved.apply if differentiable(*tensors) else kernels.convolution_forward
        return call(*whole)

    return convolved


def is_governed(tensors: Tensors) -> bool:
    """True if something else decides how a convolution is computed: a subclass, a transform, a mode."""
    if any(t.__class__ not in PLAIN for t in tensors) or transformed():
        return True
    return bool(torch.is_autocast_enabled()) or is_under_mode()


def is_kept(kernels: Any, tensors: Tensors) -> bool:
    """Return True if a compiler records one operator, which a rewrite of the graph may divide again."""
    if torch.is_autocast_enabled() or any(map(is_traceable_wrapper_subclass, tensors)):
        return False
    return policy_of(kernels.compile_policy) != "decompose"


def is_thin(layer: Any) -> bool:
    """True if a layer is a Conv2d of few input channels that the kernel knows, and nobody watches it."""
    if layer.__class__ is not nn.Conv2d or is_watched(layer) or isinstance(layer.padding, str):
        return False
    _, channels, *kernel = layer.weight.shape
    small = channels <= MOST_CHANNELS and max(kernel) <= MOST_KERNEL
    plain = layer.groups == 1 and tuple(layer.dilation) == (1, 1) and layer.padding_mode == "zeros"
    return bool(small and plain and all(step in STRIDES for step in layer.stride))


def tensors_of(layer: Any, given: "Sequence[Any]") -> "Optional[Tensors]":
    """The tensors of one kernel; None if a layer has no bias where one is added, or has one where none is.

    Args:
        layer: a convolution.
        given: the tensors of the kernel, with the layer's input in front, and None in place of its bias.
    """
    bias, weight = layer.bias, layer.weight
    added = sum(t is None for t in given)
    if added != (bias is not None) or (added and bias.shape != weight.shape[:1]):
        return None
    x, *others = given
    return x, weight, *(bias.view(-1, 1, 1) if t is None else t for t in others)


def is_number(param: Any) -> bool:
    """Return True if a scalar is a number, and not NaN, of which a clamp makes NaN."""
    return isinstance(param, (int, float)) and param == param
