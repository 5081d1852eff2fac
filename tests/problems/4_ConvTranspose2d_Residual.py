"""A transposed convolution, whose result comes back as a residual without a gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """A transposed convolution, tanh, and the result before it."""

    def __init__(self, channels: int, filters: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels, filters, kernel_size, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """From (N, channels, H, W)."""
        x = self.conv(x)
        residual = x.clone().detach()
        return torch.tanh(x) + residual


def get_inputs() -> list[Any]:
    """One tensor."""
    return [torch.rand(16, 32, 64, 64)]


def get_init_inputs() -> list[Any]:
    """The arguments of the constructor."""
    return [32, 48, 3]
