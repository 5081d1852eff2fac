"""Layers, a norm and a softmax between pointwise operations, with a module of its own inside."""

import torch
import torch.nn.functional as F
from torch import nn


class Gate(nn.Module):
    """A gate with a learnable scale."""

    def __init__(self, channels: int, slope: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(channels, 1, 1))
        self.act = nn.LeakyReLU(slope)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The gated input."""
        result: torch.Tensor = self.act(x) * self.scale
        return result


class Model(nn.Module):
    """A convolution, a norm and a gate, and another convolution."""

    def __init__(self, channels: int, groups: int, slope: float, factor: float = 0.5) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3)
        self.layers = nn.Sequential(nn.GroupNorm(groups, channels), Gate(channels, slope))
        self.factor = factor
        self.out = nn.Conv2d(channels, channels, 1)
        self.dim = 1

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The scores of each place."""
        # The convolution's bias is added with the activation.
        x = F.gelu(self.conv(x))
        z = self.layers(x) + y
        z = F.dropout(z, 0.2, training=self.training)
        x = torch.sigmoid(self.out(z)) * self.factor + x
        return torch.softmax(x, dim=self.dim), x.amax((2, 3), keepdim=True) - 1


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(2, 3, 10, 12), torch.rand(2, 8, 8, 10)]


def get_init_inputs() -> list[float]:
    return [8, 4, 0.2]


if __name__ == "__main__":
    print(Model(8, 4, 0.2))
