"""The layers in front of a kernel: convolutions without their bias, and outputs that are written over.

On CUDA PyTorch adds the bias of a convolution by a kernel of its own over the whole output; here the
module's kernel adds it. On the CPU the convolution adds it at no cost, before it rounds.
"""

import functools
import sys
from typing import Any, Callable, Dict, Tuple

import torch
from torch import nn
from torch.nn import functional

from .calls import PLAIN, have_kernel, traced, transformed
from .channels_last import Operands
from .channels_last import operands as where_exact
from .holders import has_one_owner, is_under_mode, is_watched, references

CALLS: "Dict[type, Any]" = {
    nn.Conv1d: None,
    nn.Conv2d: None,
    nn.Conv3d: None,
    nn.ConvTranspose1d: functional.conv_transpose1d,
    nn.ConvTranspose2d: functional.conv_transpose2d,
    nn.ConvTranspose3d: functional.conv_transpose3d,
}
FRESH = {nn.Linear, *CALLS}  # whose output is a new tensor
lays = where_exact  # of most kernels: see `channels_last.operands`
ALIGNED = {
    1: (-1, 1),
    2: (-1, 1, 1),
    3: (-1, 1, 1, 1),
}  # the shape of a bias, by the dimensions of a kernel


def without_bias(layer: Any, x: torch.Tensor, operands: "Callable[..., Operands]" = lays) -> Operands:
    """Return the output of a convolution without its bias, and the bias in a shape that broadcasts with it.

    A layer on the CPU, or one that is not exactly PyTorch's, adds its bias itself. In place of the bias is
    then -0.0, which changes nothing that it is added to.

    Args:
        layer: a convolution.
        x: its input.
        operands: what lays its input and its weight.
    """
    if not adds_bias_apart(x) or not leaves_bias(layer):
        y = layer(x)
        return y, y.new_full((), -0.0)
    run = functools.partial(convolved, layer)
    y = run(*operands(layer, x, run))
    bias = layer._parameters["bias"]
    bias = bias if bias.dtype is y.dtype else bias.to(y.dtype)  # under autocast
    return y, bias.view(*ALIGNED[len(layer.kernel_size)])


def for_kernels(kernels: Any) -> "Callable[..., Operands]":
    """Return a module's `without_bias`.

    Inputs stay as they are where the module's kernels would copy an output that is channels last: what the
    convolution gains, such a copy would cost several times. So they do where its gradients would be slower.
    What patches a model, which reads results as eager lays them, chooses itself.
    """
    return lambda layer, x, lays=None: without_bias(layer, x, lays or kernels.lays)


def adds_bias_apart(x: torch.Tensor) -> bool:
    """Return True if PyTorch adds the bias of a convolution of x by a kernel of its own."""
    return x.is_cuda is True  # False for a Proxy of torch.fx


def leaves_bias(layer: nn.Module) -> bool:
    """Return True if a layer is one of PyTorch's convolutions that can run without its bias."""
    if layer.__class__ not in CALLS or is_watched(layer):
        return False
    of: Any = layer
    own: "Dict[str, Any]" = of._parameters  # a dict, which takes a fifth of the time of an attribute
    weight, bias = own.get("weight"), own.get("bias")
    if weight is None or bias is None:
        return False
    channels = weight.shape[1] * of.groups if of.transposed else weight.shape[0]
    fits = bias.shape == (channels,)  # else PyTorch refuses it, as it does another dtype
    return bool(fits and bias.dtype == weight.dtype)  # which autocast casts


def convolved(layer: Any, x: torch.Tensor, weight: torch.Tensor) -> Any:
    """Return the output of one of PyTorch's convolutions without its bias, of a given weight."""
    call = CALLS[layer.__class__]
    if call is None:
        return layer._conv_forward(x, weight, None)
    sizes = layer.stride, layer.padding, layer.output_padding, layer.groups, layer.dilation
    return call(x, weight, None, *sizes)


def reused(layer: nn.Module, x: torch.Tensor, *others: torch.Tensor) -> "Any":
    """Return the output of a layer to write the result over, or None where something else may need it.

    The caller is a function that holds x in one variable.

    Args:
        layer: the layer that has just made x.
        x: its output.
        others: what the kernel takes besides.
    """
    if torch.is_grad_enabled() or layer.__class__ not in FRESH or is_watched(layer):
        return None
    if traced() or transformed() or is_under_mode() or x.__class__ not in PLAIN or not have_kernel(x):
        return None
    held = object()  # by one variable, too
    if sys.getrefcount(x) != references(layer, held) or not has_one_owner(x):
        return None
    return x if has_result_of(x, others) else None


def has_result_of(x: torch.Tensor, others: "Tuple[torch.Tensor, ...]") -> bool:
    """Return True if the result of a kernel has the shape, the dtype and the device of its first tensor."""
    alike = all(t.dtype == x.dtype and t.device == x.device for t in others)
    return alike and torch.broadcast_shapes(x.shape, *(t.shape for t in others)) == x.shape
