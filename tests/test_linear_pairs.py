"""Linear layers that `patch` runs with the activations behind them, as one kernel where one is there."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fusegen
from fusegen.models.patch.paired import KERNEL


def network() -> nn.Sequential:
    """Two large layers with activations, and a small one."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(1024, 512),
        nn.LeakyReLU(0.2),
        nn.Linear(512, 1024),
        nn.Linear(1024, 512),
        nn.Linear(512, 8),
        nn.ReLU(),
    )


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Sequential, Any, Path]:
    """A patched model, its report and its folder."""
    model, folder = network(), tmp_path_factory.mktemp("linear")
    return model, fusegen.patch(model, folder=folder), folder


@pytest.mark.full
def test_a_large_layer_and_its_activation_have_a_kernel(patched: tuple[nn.Sequential, Any, Path]) -> None:
    model, report, folder = patched
    assert [(each.path, each.module) for each in report.replaced] == [
        ("0", "linear_leaky_relu"),
        ("5", "relu"),
    ]
    assert 'layers: [linear: "Linear(1024, 1024)"]' in (folder / "linear_leaky_relu.yaml").read_text(
        "utf-8"
    )
    assert [KERNEL in vars(layer) for layer in model] == [True, False, False, False, False, False]


def test_values_and_gradients_are_those_of_eager(patched: tuple[nn.Sequential, Any, Path]) -> None:
    x = torch.randn(4, 1024)
    for model in (patched[0], pickle.loads(pickle.dumps(patched[0]))):
        with torch.no_grad():
            torch.testing.assert_close(model(x), network()(x), rtol=1e-4, atol=1e-5)
        own, eager = (
            torch.autograd.grad(of(x).square().sum(), [*of.parameters()]) for of in (model, network())
        )
        torch.testing.assert_close(own, eager, rtol=1e-4, atol=1e-5)


def test_the_one_kernel_is_given_the_layer_and_the_numbers(
    patched: tuple[nn.Sequential, Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, given = patched[0], []

    def multiplied(layer: nn.Module, x: Tensor, *numbers: float) -> Tensor:
        given.append((layer, numbers))
        return torch.zeros(len(x), 512)

    monkeypatch.setattr(vars(model[0])[KERNEL].kernels, "multiplied", multiplied)
    model(torch.randn(4, 1024))
    assert given == [(model[0], (0.2,))]


def test_a_patch_can_be_undone(tmp_path: Path) -> None:
    model = network()
    fusegen.patch(model, folder=tmp_path).undo()
    assert type(model) is nn.Sequential
    assert not any(KERNEL in vars(layer) for layer in model)


@pytest.mark.full
def test_a_large_convolution_of_single_pixels_and_its_activation_have_a_kernel(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1024, 512, 1), nn.LeakyReLU(0.2), nn.Conv2d(512, 8, 1), nn.LeakyReLU(0.2)
    )
    x = torch.randn(2, 1024, 2, 3).to(memory_format=torch.channels_last)
    expected = model(x)
    report = fusegen.patch(model, folder=tmp_path)
    names = [("0", "conv1x1_leaky_relu"), ("2", "bias_leaky_relu")]
    assert [(each.path, each.module) for each in report.replaced] == names
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
    layer, given = model[0], []

    def called(*arguments: Any) -> Any:
        given.append(arguments)

    kernels = vars(layer)[KERNEL].kernels
    for name in ("multiplied", "linear_without_bias"):
        setattr(kernels, name, called if name == "multiplied" else lambda *of: (layer(x), torch.zeros(())))
    model(x)
    assert given == [(layer, x, None, 0.2)]
