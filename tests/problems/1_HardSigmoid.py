"""An activation."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Model(nn.Module):
    """Hard sigmoid."""

    def forward(self, x: Tensor) -> Tensor:
        """Of any shape."""
        return F.hardsigmoid(x)


rows = 2048
features = 4096


def get_inputs() -> list[Any]:
    """One tensor."""
    return [torch.rand(rows, features)]


def get_init_inputs() -> list[Any]:
    """No arguments."""
    return []
