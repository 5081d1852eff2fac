"""A reduction, of which there is no module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """Softmax."""

    def forward(self, x: Tensor) -> Tensor:
        """Over the last dimension."""
        return torch.softmax(x, -1)


def get_inputs() -> list[Any]:
    """One tensor."""
    return [torch.rand(256, 512)]


def get_init_inputs() -> list[Any]:
    """No arguments."""
    return []
