"""A linear layer, then a chain whose factor is an argument of the constructor."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Model(nn.Module):
    """A linear layer, a factor and silu."""

    def __init__(self, in_features: int, out_features: int, factor: float = 0.5) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """From (N, in_features) to (N, out_features)."""
        return F.silu(self.linear(x) * self.factor)


batch = 512
in_features, out_features = 1024, 2048
factor = 1.5


def get_inputs() -> list[Any]:
    """One tensor."""
    return [torch.rand(batch, in_features)]


def get_init_inputs() -> list[Any]:
    """The arguments of the constructor."""
    return [in_features, out_features, factor]
