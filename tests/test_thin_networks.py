"""Networks whose first layer is a thin convolution, for which `lift` and `patch` make modules."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from emulated import defined as defined
from thin_modules import calls_on_a_gpu, emulate
from torch import Tensor, nn
from torch.fx.experimental.optimization import fuse

import fusegen
from fusegen.language.parse import parse_spec
from fusegen.models.lift.lifted import lifted
from fusegen.models.lift.lifted_network import lifted_network
from fusegen.models.lift.network import Network
from fusegen.models.lift.regions.front import Front
from fusegen.models.patch.paired import KERNEL
from fusegen.schedule.thin_convolution import Thin, thin


class Small(nn.Module):
    """The beginning of a network for images, as in torchvision, with another convolution behind it."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8)
        self.relu, self.layer1 = nn.ReLU(inplace=True), nn.Conv2d(8, 17, 1, bias=False)
        self.layer2, self.fc = nn.Conv2d(17, 16, 3), nn.Linear(16, 5)
        self.scale = nn.Parameter(torch.rand(17, 1, 1))
        for name, value in (("running_mean", torch.randn(8)), ("running_var", torch.rand(8) + 0.5)):
            getattr(self.bn1, name).copy_(value)

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = nn.functional.hardtanh(self.layer1(x) * self.scale)
        x = nn.functional.hardtanh(self.layer2(x) * 2)
        y: Tensor = self.fc(x.mean((2, 3)))
        return y


X = (2, 3, 17, 20)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Biases are kernels of their own, as on CUDA."""
    monkeypatch.setattr("fusegen.models.lift.found.adds_bias_apart", lambda _: True)
    monkeypatch.setattr("fusegen.schedule.thin_convolution.LEAST_WORTH", (6, 64))  # columns and elements


def convolved(network: Network) -> dict[str, Any]:
    """The modules of a network whose kernels have a convolution."""
    return {name: each for name, each in network.named_children() if type(each).__name__ == "Convolved"}


def as_on_a_gpu(kernels: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The calls of kernels from now on, in emulation: True for one kernel."""
    module = SimpleNamespace(KERNELS=kernels)
    emulate(module, folder)
    return calls_on_a_gpu(module, monkeypatch)


@pytest.mark.full
def test_a_first_layer_with_its_norm_is_one_kernel(
    apart: None, tmp_path: Path, extensions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    folded, x = fuse(Small().eval()).requires_grad_(), torch.randn(X)
    network = lifted_network(folded, x, tmp_path)
    found = convolved(network)
    assert list(found) == ["conv3x3_relu", "conv1x1_mul_hardtanh"]  # the third has 17 channels
    spec = (tmp_path / "conv3x3_relu.yaml").read_text(encoding="utf-8")
    assert 'layers: [conv: "Conv2d(3, 8, (3, 3), stride=(2, 2), padding=(1, 1))"]\n' in spec
    assert network.state_dict().keys() == folded.state_dict().keys()
    wanted = [*folded.parameters()]
    first = torch.autograd.grad(folded(x).square().sum(), wanted)
    compiled: Any = torch.compile(network, backend="aot_eager", fullgraph=True)
    for each in (network, compiled, pickle.loads(pickle.dumps(copy.deepcopy(network)))):
        torch.testing.assert_close(each(x), folded(x), rtol=1e-4, atol=1e-5)
    ran = [as_on_a_gpu(each.value, tmp_path, monkeypatch) for each in found.values()]
    y = network(x)
    torch.testing.assert_close(y, folded(x), rtol=1e-4, atol=1e-5)
    slopes = torch.autograd.grad(y.square().sum(), wanted)
    torch.testing.assert_close(slopes, first, rtol=1e-4, atol=1e-4)
    assert ran == [[True], [True]]


@pytest.mark.full
def test_on_the_cpu_regions_have_no_convolution(tmp_path: Path) -> None:
    network = lifted_network(fuse(Small().eval()), torch.randn(X), tmp_path)
    assert convolved(network) == {}


CONVOLUTIONS: dict[str, tuple[Callable[[], nn.Module], bool]] = {  # and whether a spec has them
    "few channels": (lambda: nn.Conv2d(3, 4, 3), True),
    "a small output": (lambda: nn.Conv2d(3, 4, 5), False),
    "many channels": (lambda: nn.Conv2d(17, 4, 3), False),
    "many terms": (lambda: nn.Conv2d(16, 4, 4), False),
    "groups": (lambda: nn.Conv2d(4, 4, 3, groups=2), False),
    "a word": (lambda: nn.Conv2d(3, 4, 3, padding="same"), False),
    "another class": (lambda: nn.ConvTranspose2d(3, 4, 3), False),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_specs_of_regions_have_thin_convolutions(
    name: str, apart: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, expected = CONVOLUTIONS[name]
    layer: Any = make()
    monkeypatch.setattr("fusegen.models.lift.lifted_network.builds.build", lambda *_: ())
    module = SimpleNamespace(KERNELS=SimpleNamespace(run_or=lambda run: run), without_bias=None)
    monkeypatch.setattr("fusegen.models.lift.regions.region_module.imported", lambda path: module)
    model = nn.Sequential(layer, nn.Hardtanh(), nn.Hardswish())
    network = lifted_network(model, torch.randn(2, layer.in_channels, 9, 9), tmp_path)
    assert bool(convolved(network)) == expected


@pytest.mark.full
def test_a_patched_pair_is_one_kernel(
    tmp_path: Path, extensions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(3, 5, 3, 2, 1), nn.LeakyReLU(0.2)), torch.randn(X)
    expected = model(x)
    wanted = torch.autograd.grad(expected.square().sum(), [*model.parameters()])
    report = fusegen.patch(model, folder=tmp_path)
    assert [each.module for each in report.replaced] == ["conv3x3_3_leaky_relu"]
    ran = as_on_a_gpu(vars(model[0])[KERNEL].kernels, tmp_path, monkeypatch)
    y = model(x)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    found = torch.autograd.grad(y.square().sum(), [*model.parameters()])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert ran == [True]


def test_arguments_of_a_layer_are_those_that_make_it_again() -> None:
    for layer in (
        nn.Conv2d(3, 4, (3, 1), bias=False),
        nn.Conv2d(4, 4, 3, (1, 2), 2, dilation=2, groups=4, padding_mode="reflect"),
    ):
        node: Any = None
        front = Front(layer, "conv", node, node, None, node)
        again = eval(f"Conv2d({front.arguments})", {"Conv2d": nn.Conv2d})
        assert repr(again) == repr(layer)


FIRST_LAYER = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, stride=2, bias=False)

    def forward(self, x):
        return torch.relu(self.conv(x)) * 0.5

def get_inputs():
    return [torch.rand(2, 3, 16, 16)]

def get_init_inputs():
    return [8]
"""


def test_a_model_that_is_lifted_whole_is_one_kernel(tmp_path: Path) -> None:
    path = tmp_path / "first_layer.py"
    path.write_text(FIRST_LAYER, encoding="utf-8")
    found = thin(parse_spec(lifted(f"{path}:Model").text, "first_layer.yaml"))
    assert found == Thin(3, 8, (3, 3), (2, 2), (0, 0), (2, 16, 16))
