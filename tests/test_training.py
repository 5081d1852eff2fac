"""A small network learns with the generated activations as it does with PyTorch's own."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernels import DEVICES, ON_CUDA, assert_same, by_module, function, generated, smooth
from torch import Tensor, nn

CUDA: Any = torch.cuda  # which declares no types for streams
STEPS = 20
Layer = tuple[str, Callable[[], nn.Module]]
LAYERS: tuple[Layer, ...] = (  # the activation of every layer, PyTorch's beside ours
    ("hardswish", lambda: nn.Hardswish()),
    ("silu", lambda: nn.SiLU(inplace=True)),
    ("gelu", lambda: nn.GELU()),
    ("mish", lambda: nn.Mish()),
    ("relu6", lambda: nn.ReLU6(inplace=True)),
    ("leaky_relu", lambda: nn.LeakyReLU(0.1)),
)


def ours(name: str) -> nn.Module:
    """The generated module with the same arguments."""
    arguments: dict[str, dict[str, Any]] = {
        "silu": {"inplace": True},
        "relu6": {"inplace": True},
        "leaky_relu": {"negative_slope": 0.1},
    }
    model = generated(name).ModelNew(**arguments.get(name, {}))
    assert isinstance(model, nn.Module)
    return model


class Gated(nn.Module):
    """A gated layer, as transformers have it: one projection whose halves are gate and value."""

    def __init__(self, gate: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.project, self.gate = nn.Linear(8, 24), gate

    def forward(self, x: Tensor) -> Tensor:
        """The gate's values."""
        return self.gate(self.project(x))


class Doubled(nn.Module):
    """A tensor in float64."""

    def forward(self, x: Tensor) -> Tensor:
        """The same values."""
        return x.double()


def eager_swiglu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def network(generated_ones: bool) -> nn.Sequential:
    """Convolutions with another activation after each; always the same first weights."""
    torch.manual_seed(11)
    layers: list[nn.Module] = []
    channels = 1
    for k, (name, theirs) in enumerate(LAYERS):
        layers += [nn.Conv2d(channels, 8, 3, padding=1, stride=2 if k in (1, 3) else 1), nn.BatchNorm2d(8)]
        layers.append(ours(name) if generated_ones else theirs())
        channels = 8
    gate = function("swiglu") if generated_ones else eager_swiglu
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), Gated(gate), nn.Linear(12, 4))


def data(device: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Stripes of four directions under noise."""
    generator = torch.Generator().manual_seed(5)
    grid = torch.arange(16.0)
    rows, columns = grid.view(-1, 1), grid.view(1, -1)
    waves = torch.stack([(rows * a + columns * b).sin() for a, b in ((1, 0), (0, 1), (1, 1), (1, -1))])
    for _ in range(STEPS):
        labels = torch.randint(4, (16,), generator=generator)
        images = waves[labels].unsqueeze(1) + 0.2 * torch.randn(16, 1, 16, 16, generator=generator)
        yield images.to(device), labels.to(device)


def learned(model: nn.Module, call: Callable[[Tensor], Tensor], device: str, half: bool) -> list[float]:
    """The loss of every step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for images, labels in data(device):
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16) if half else nullcontext():
            loss = F.cross_entropy(call(images).float(), labels)
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


def agree(curves: list[list[float]], room: float) -> None:
    """Every loss within `room`, and less of it at the end than at the start."""
    actual, expected = curves
    assert sum(expected[-4:]) / 4 < 0.75 * expected[0], expected
    assert sum(actual[-4:]) / 4 < 0.75 * actual[0], actual
    assert max(abs(a - b) for a, b in zip(actual, expected, strict=True)) <= room, (actual, expected)


@pytest.mark.few(1)
@pytest.mark.parametrize("device", DEVICES)
def test_the_curve_of_losses_is_eagers(device: str) -> None:
    """In float32: what differs are last places, which training makes larger step by step."""
    models = [network(flag).to(device) for flag in (True, False)]
    for actual, expected in zip(
        models[0].state_dict().values(), models[1].state_dict().values(), strict=True
    ):
        assert torch.equal(actual, expected)
    agree([learned(model, model, device, False) for model in models], room=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
def test_in_float64_the_curves_are_the_same(device: str) -> None:
    models = [network(flag).to(device).double() for flag in (True, False)]
    agree([learned(model, nn.Sequential(Doubled(), model), device, False) for model in models], room=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
def test_under_autocast_the_curve_of_losses_is_near_eagers(device: str) -> None:
    models = [network(flag).to(device) for flag in (True, False)]
    agree([learned(model, model, device, True) for model in models], room=0.02)


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")  # whose node the capture keeps
@pytest.mark.parametrize("device", [ON_CUDA])
def test_a_graph_replays_forward_and_backward(device: str) -> None:
    """Captured once; replayed on new inputs it gives the bits of the calls."""
    model = network(True).to(device).eval()
    x = torch.randn(16, 1, 16, 16, device=device)
    side = CUDA.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
        gradients = torch.autograd.grad(y.square().sum(), list(model.parameters()))
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        expected = model(x)
        torch.testing.assert_close(y, expected)
        wanted = torch.autograd.grad(expected.square().sum(), list(model.parameters()))
        torch.testing.assert_close(gradients, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", by_module(["hardswish", "relu6", "elu"]))
def test_a_second_backward_through_one_graph(name: str, device: str) -> None:
    """Saved tensors serve as often as retain_graph asks for; then they are gone, as eager's are."""
    [x] = smooth(name, 50, device=device)
    leaf = x.requires_grad_()
    y = function(name)(leaf)
    first, second = (torch.autograd.grad(y.sum(), leaf, retain_graph=True)[0] for _ in range(2))
    assert_same(first, second)
    torch.autograd.backward(y.sum())
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.backward(y.sum())
