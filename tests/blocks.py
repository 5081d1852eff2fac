"""Six blocks of public networks that tests lift: products with chains between them; and training."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

C, D = 8, 16  # channels of images, and features of rows


def trained(model: nn.Module, *shape: int, rate: float = 0.01) -> Tensor:
    """The loss of the last of five steps that train a model."""
    steps = torch.optim.SGD(model.parameters(), rate)
    draw = torch.Generator().manual_seed(1)
    loss: Any = None
    for _ in range(5):
        steps.zero_grad()
        loss = model(torch.randn(shape, generator=draw)).square().mean()
        loss.backward()
        steps.step()
    last: Tensor = loss.detach()
    return last


class SqueezeExcite(nn.Module):
    """MobileNetV3's block: a depthwise convolution, its norm and hardswish, and a gate of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(C, C, 3, padding=1, groups=C, bias=False), nn.BatchNorm2d(C)
        self.reduce, self.expand = nn.Conv2d(C, 4, 1), nn.Conv2d(4, C, 1)
        self.act, self.gate, self.pool = nn.Hardswish(), nn.Hardsigmoid(), nn.AdaptiveAvgPool2d(1)
        self.project = nn.Conv2d(C, C, 1)

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        y = self.act(self.norm(self.conv(x)))
        scale = self.gate(self.expand(F.relu(self.reduce(self.pool(y)))))
        return self.project(scale * y)


class GatedMlp(nn.Module):
    """Llama's feed-forward layers, behind the residual and the norm."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.norm = nn.Linear(D, D, bias=False), nn.RMSNorm(D, eps=1e-6)
        self.gate, self.up, self.down = (nn.Linear(D, D, bias=False) for _ in range(3))

    def forward(self, x: Tensor, residual: Tensor) -> Any:
        """Return the block."""
        hidden = self.out(x) + residual
        normed = self.norm(hidden)
        return self.down(F.silu(self.gate(normed)) * self.up(normed)) + hidden


class Unet(nn.Module):
    """A residual block of diffusion models, with the embedding of time."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(2, C), nn.GroupNorm(2, C)
        self.conv1, self.conv2 = nn.Conv2d(C, C, 3, padding=1), nn.Conv2d(C, C, 3, padding=1)
        self.time = nn.Linear(D, C)

    def forward(self, x: Tensor, time: Tensor) -> Any:
        """Return the block."""
        y = self.conv1(F.silu(self.norm1(x)))
        y = y + self.time(F.silu(time))[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(y)))


class ConvNext(nn.Module):
    """ConvNeXt's block, with a scale of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(C, C, 7, padding=3, groups=C), nn.LayerNorm(C, eps=1e-6)
        self.first, self.second = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)
        self.act, self.scale = nn.GELU(), nn.Parameter(torch.full((C,), 0.1))

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        y = self.scale * self.second(self.act(self.first(y)))
        return x + y.permute(0, 3, 1, 2)


class Style(nn.Module):
    """A layer of StyleGAN2 behind its modulation, with noise."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.affine = nn.Conv2d(C, C, 3, padding=1, bias=False), nn.Linear(D, C)
        self.strength, self.bias = nn.Parameter(torch.tensor(0.1)), nn.Parameter(torch.zeros(C))
        self.last = nn.Conv2d(C, 3, 1)

    def forward(self, x: Tensor, style: Tensor, noise: Tensor) -> Any:
        """Return the layer."""
        y = self.conv(x * self.affine(style)[:, :, None, None])
        y = y + noise * self.strength + self.bias[:, None, None]
        y = F.leaky_relu(y, 0.2) * math.sqrt(2)
        return self.last(y.clamp(-256, 256))


class Policy(nn.Module):
    """The head of a policy whose actions are squashed Gaussians."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.spread, self.critic = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, 1)

    def forward(self, x: Tensor, draw: Tensor) -> Any:
        """Return the value of an action."""
        mean, spread = self.mean(x), torch.tanh(self.spread(x))
        spread = torch.exp(-5 + 0.5 * 7 * (spread + 1))
        return self.critic(torch.tanh(mean + spread * draw))


IMAGES, ROWS = (2, C, 6, 6), (3, 5, D)
BLOCKS: dict[type[nn.Module], tuple[tuple[int, ...], ...]] = {  # with the shapes of their inputs
    SqueezeExcite: (IMAGES,),
    GatedMlp: (ROWS, ROWS),
    Unet: (IMAGES, (2, D)),
    ConvNext: (IMAGES,),
    Style: (IMAGES, (2, D), (2, 1, 6, 6)),
    Policy: ((7, D), (7, D)),
}
