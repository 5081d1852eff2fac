"""Small networks that tests lift."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SqueezeExcite(nn.Module):
    """Scales each channel by a gate of its mean."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce, self.expand = (
            nn.Conv2d(channels, channels // 4, 1),
            nn.Conv2d(channels // 4, channels, 1),
        )
        self.pool, self.gate = nn.AdaptiveAvgPool2d(1), nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        """The gated input, of its shape."""
        s = self.expand(F.relu(self.reduce(self.pool(x))))
        result: Tensor = self.gate(s) * x
        return result


class Block(nn.Module):
    """A residual block: depthwise convolution, hard-swish, squeeze and excitation, a scaled residual."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.norm, self.act = nn.BatchNorm2d(channels), nn.Hardswish(inplace=True)
        self.excite = SqueezeExcite(channels)
        self.pointwise, self.second = nn.Conv2d(channels, channels, 1), nn.BatchNorm2d(channels)
        self.scale = nn.Parameter(torch.full((channels, 1, 1), 0.3))

    def forward(self, x: Tensor) -> Tensor:
        """A tensor of the input's shape."""
        y = self.excite(self.act(self.norm(self.depthwise(x))))
        y = F.dropout(self.second(self.pointwise(y)), 0.1, training=self.training)
        return F.relu(x + y * self.scale)


class Mobile(nn.Module):
    """A network of such blocks, with a smooth limit of its scores."""

    def __init__(self, channels: int = 8, blocks: int = 2) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, 2, 1), nn.BatchNorm2d(channels), nn.Hardswish())
        self.blocks = nn.Sequential(*(Block(channels) for _ in range(blocks)))
        self.head = nn.Linear(channels, 5)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        """Scores, a row for each image."""
        x = self.blocks(self.stem(x)).mean((2, 3))
        return torch.tanh(self.head(x) * 0.5) * 2


def mobile() -> Mobile:
    """A network, as the command line calls for one."""
    torch.manual_seed(0)
    return Mobile()


def images() -> list[Tensor]:
    """Its inputs."""
    return [torch.randn(2, 3, 16, 16)]
