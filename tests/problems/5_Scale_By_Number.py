"""A tensor times a number that forward takes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """A product."""

    def forward(self, a: Tensor, s: float) -> Tensor:
        """Of any shape."""
        return a * s


M = 2048
N = 512


def get_inputs() -> list[Any]:
    """A tensor and a number."""
    return [torch.rand(M, N), 3.14]


def get_init_inputs() -> list[Any]:
    """No arguments."""
    return []
