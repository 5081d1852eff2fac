"""A convolution, then a chain with a parameter for each channel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """A convolution, ReLU and a learned shift of each channel."""

    def __init__(self, channels: int, filters: int, kernel_size: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size)
        self.shift = nn.Parameter(torch.randn(shape))

    def forward(self, x: Tensor) -> Tensor:
        """From (N, channels, H, W)."""
        return torch.relu(self.conv(x)) + self.shift


batch, channels, filters = 32, 16, 64
height = width = 128
kernel_size = 11  # more than what is a size elsewhere
shape = (filters, 1, 1)


def get_inputs() -> list[Any]:
    """One tensor."""
    return [torch.rand(batch, channels, height, width)]


def get_init_inputs() -> list[Any]:
    """The arguments of the constructor."""
    return [channels, filters, kernel_size, shape]
