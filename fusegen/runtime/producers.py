"""The layers in front of a kernel: convolutions without their bias, and outputs that are written over.

On CUDA PyTorch adds the bias of a convolution by a kernel of its own over the whole output; here the
module's kernel adds it. On the CPU the convolution adds it at no cost, before it rounds.
"""

import sys
from typing import Any, Callable, Dict, Tuple

import torch
from torch import nn
from torch.nn import functional

from .calls import PLAIN, have_kernel, traced, transformed
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
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by the number of dimensions
ALIGNED = {
    1: (-1, 1),
    2: (-1, 1, 1),
    3: (-1, 1, 1, 1),
}  # the shape of a bias, by the dimensions of a kernel
LEAST_TRANSPOSED = 16  # channels, and pixels, from which a tiled copy is faster than PyTorch's
LEAST_IN_TF32 = 32  # channels of a group, from which cuDNN computes NCHW in TF32, too


def relaid(x: torch.Tensor, layout: "torch.memory_format") -> torch.Tensor:
    """Return a tensor in a memory format, copied by PyTorch unless it is laid so."""
    return x.contiguous(memory_format=layout)


def without_bias(
    layer: Any, x: torch.Tensor, lay: "Callable[..., torch.Tensor]" = relaid
) -> "Tuple[torch.Tensor, torch.Tensor]":
    """Return the output of a convolution without its bias, and the bias in a shape that broadcasts with it.

    A layer on the CPU, or one that is not exactly PyTorch's, adds its bias itself. In place of the bias is
    then -0.0, which changes nothing that it is added to.

    Args:
        layer: a convolution.
        x: its input.
        lay: what lays a tensor in a memory format.
    """
    if not adds_bias_apart(x) or not leaves_bias(layer):
        y = layer(x)
        return y, y.new_full((), -0.0)
    y = convolved(layer, in_faster_layout(layer, x, lay))
    bias = layer._parameters["bias"]
    bias = bias if bias.dtype is y.dtype else bias.to(y.dtype)  # under autocast
    return y, bias.view(*ALIGNED[len(layer.kernel_size)])


def for_kernels(kernels: Any) -> "Callable[..., Tuple[torch.Tensor, torch.Tensor]]":
    """Return a module's `without_bias`, which lays inputs by the module's own copy where that is faster.

    Inputs stay as they are where the module's kernels would copy an output that is channels last.
    """

    def lay(x: torch.Tensor, layout: "torch.memory_format") -> torch.Tensor:
        if not kernels.reads_channels_last:
            return x  # what the convolution gains, a copy of its output would cost several times
        known = kernels.sources.transposes and x.__class__ in PLAIN and x.dtype in kernels.dtypes
        if not known or not transposes(x):
            return relaid(x, layout)
        made = torch.empty_like(x, memory_format=layout)
        getattr(kernels.operators, f"{kernels.name}_transposed_out").default._op(x, made)
        return made

    return lambda layer, x: without_bias(layer, x, lay)


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


def convolved(layer: Any, x: torch.Tensor) -> Any:
    """Return the output of one of PyTorch's convolutions without its bias."""
    call, weight = CALLS[layer.__class__], layer._parameters["weight"]
    if call is None:
        return layer._conv_forward(x, weight, None)
    sizes = layer.stride, layer.padding, layer.output_padding, layer.groups, layer.dilation
    return call(x, weight, None, *sizes)


def in_faster_layout(
    layer: Any, x: torch.Tensor, lay: "Callable[..., torch.Tensor]" = relaid
) -> torch.Tensor:
    """Return the input of a convolution on CUDA, channels last where that is faster and no less accurate.

    In channels_last cuDNN moves no elements between layouts, and computes float32 in TF32 if that is
    allowed. Transposed convolutions then have the same bits in both layouts; others round otherwise, by up
    to 1.7e-4 of KernelBench's results, and stay as they are. With few channels cuDNN computes NCHW in
    float32 all the same. A compiler that traces the model lays out its convolutions itself.
    """
    layout = CHANNELS_LAST.get(x.dim())
    if traced() or layout is None or x.is_contiguous(memory_format=layout):
        return x
    channels = layer.in_channels // layer.groups
    alike = x.dtype == torch.float32 and layer.transposed and uses_tf32() and channels >= LEAST_IN_TF32
    batched = x.dim() == len(layer.kernel_size) + 2
    if not batched or not (alike or x.element_size() == 2):
        return x
    return lay(x, layout)


def transposes(x: torch.Tensor) -> bool:
    """True if a module's own copy lays an input of a convolution channels last; it records no gradient."""
    recorded = torch.is_grad_enabled() and x.requires_grad
    if recorded or transformed() or not x.is_cuda or not x.is_contiguous() or x.dim() not in CHANNELS_LAST:
        return False
    channels = x.shape[1]
    pixels = x.numel() // max(1, x.shape[0] * channels)
    return x.numel() > 0 and min(channels, pixels) >= LEAST_TRANSPOSED


def uses_tf32() -> bool:
    """Return True if convolutions of float32 may be computed in TF32."""
    newer: "Any" = getattr(torch.backends.cudnn, "conv", None)
    return bool(newer.fp32_precision == "tf32" if newer is not None else torch.backends.cudnn.allow_tf32)


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
