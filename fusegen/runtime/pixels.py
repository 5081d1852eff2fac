"""Convolutions of single pixels, 1 x 1, of channels-last tensors: linear layers whose rows are the pixels.

They are views: no number is copied for a call of the kernels of linear layers.
"""

from typing import Any, Optional

import torch
from torch import nn

DIMENSIONS = {nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3}  # of an image, by the class of a layer


def is_of_pixels(layer: Any) -> bool:
    """Return True if a layer is one of PyTorch's convolutions, and each result is of a single pixel."""
    count = DIMENSIONS.get(layer.__class__)
    if count is None or layer.kernel_size != (1,) * count or layer.groups != 1:
        return False
    padded = layer.padding_mode != "zeros" or layer.padding not in ((0,) * count, "same", "valid")
    return bool(not padded and layer.stride == (1,) * count)


def fits(layer: Any, x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Return True for a batch of images, and the weight of a convolution of single pixels."""
    count = len(layer.kernel_size) + 2
    return x.dim() == count and weight.dim() == count and weight.shape[2:].numel() == 1


def pixels_of(x: torch.Tensor) -> "Optional[torch.Tensor]":
    """Return the pixels of channels-last images as the rows of a matrix; None of images laid otherwise."""
    _, channels, *sizes = x.shape
    across, along, *steps = x.stride()
    pitch = step = steps[-1]
    if along != 1 or pitch < channels:
        return None
    for size, own in zip(reversed(sizes), reversed(steps)):
        if own != step:
            return None
        step *= size
    return x.movedim(1, -1).flatten(0, -2) if across == step else None


def images_of(made: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return rows of results as the images that PyTorch's layer makes of x, laid as these are."""
    whole = made.view(x.shape[0], *x.shape[2:], made.shape[-1]).movedim(-1, 1)
    return whole.contiguous() if x.dim() == 3 else whole  # PyTorch lays no lines channels last


def operand_of_rows(operand: torch.Tensor, x: torch.Tensor, features: int) -> "Optional[torch.Tensor]":
    """Return an operand of the images of a layer as a matrix that broadcasts to its rows.

    None where it enlarges them, or has other numbers than one for each channel, for each result or for all.

    Args:
        operand: broadcasts to the output of the layer.
        x: the input of the layer.
        features: the channels of the output.
    """
    shape = (x.shape[0], features, *x.shape[2:])
    sizes = (1,) * (len(shape) - operand.dim()) + tuple(operand.shape)
    if len(sizes) != len(shape) or any(n not in (1, m) for n, m in zip(sizes, shape)):
        return None
    if sizes.count(1) >= len(sizes) - 1 and sizes[1] == operand.numel():
        return operand.reshape(1, -1)
    return pixels_of(operand) if sizes == shape else None
