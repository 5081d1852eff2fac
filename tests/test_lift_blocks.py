"""Blocks of public networks, lifted: norms of rows in regions, sums in front of them, several results."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from blocks import BLOCKS, ConvNext, GatedMlp, Policy, SqueezeExcite, Style, Unet
from torch import Tensor, nn

import fusegen
from fusegen.models.lift import lifted_network
from fusegen.models.lift.found import Found, found
from fusegen.models.reader.row_gains import FUSED, GAINS, WRITTEN_OUT, Gain

ROWS, D = 700, 16  # so many that a region saves what a call costs


@pytest.fixture(autouse=True)
def norms_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kernels of norms be faster than PyTorch's."""
    for name in ("layer_norm", "rms_norm", "group_norm_of_other_dimensions"):
        for mode in (False, True):
            monkeypatch.setitem(GAINS, ("cpu", name, FUSED, 4, mode), Gain(1, 2**20))


def evaluated(of: Found) -> list[list[str]]:
    """Return the operations of the regions in the graph of evaluation."""
    graph = of.modes.graphs[-1]
    every = [each.region for each in of.chosen if each.region.result.graph is graph]
    return [[node.name for node in each.nodes] for each in every]


REGIONS: dict[type[nn.Module], list[list[str]]] = {
    SqueezeExcite: [["normed_affine", "act"], ["pool"], ["relu"], ["gate", "mul"]],
    GatedMlp: [["add", "rms_norm"], ["silu", "mul"], ["add_1"]],
    Unet: [["group_norm", "silu"], ["silu_1"], ["add", "group_norm_1", "silu_2"], ["add_1"]],
    ConvNext: [["layer_norm"], ["act"], ["mul", "add"]],
    Style: [["mul"], ["mul_1", "add", "add_1", "leaky_relu", "mul_2", "clamp"]],
    Policy: [["tanh", "add", "mul", "add_1", "exp", "mul_1", "add_2", "tanh_1"]],
}


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.__name__)
def test_the_kernels_of_a_block(kind: type[nn.Module]) -> None:
    inputs = [torch.randn(shape) for shape in BLOCKS[kind]]
    assert evaluated(found(kind().eval(), inputs, least_passes=1)) == REGIONS[kind]


class Transformer(nn.Module):
    """A block whose sums are read behind their norms, too."""

    def __init__(self, norm: Any = nn.LayerNorm) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = (nn.Linear(D, D) for _ in range(3))
        self.before, self.after = norm(D), norm(D, eps=1e-3)
        for each in (*self.before.parameters(), *self.after.parameters()):
            each.data.add_(0.3 * torch.randn_like(each))

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        x = x + self.first(self.before(x))
        return torch.relu(x + self.second(torch.tanh(self.after(x))) * self.third(x))


def results(model: nn.Module, *inputs: Tensor) -> list[Tensor]:
    """Return the value and the gradients."""
    leaves = [each.clone().requires_grad_() for each in inputs]
    value = model(*leaves)
    return [value.detach(), *torch.autograd.grad(value.square().sum(), [*leaves, *model.parameters()])]


def compare(network: nn.Module, model: nn.Module, *inputs: Tensor) -> None:
    """Compare the values and gradients of a network with those of its model in double."""
    exact = results(copy.deepcopy(model).double(), *(each.double() for each in inputs))
    for mine, other, true in zip(results(network, *inputs), results(model, *inputs), exact, strict=True):
        error, theirs = (mine.double() - true).abs().max(), (other.double() - true).abs().max()
        assert error <= 2 * theirs + 4 * torch.finfo(torch.float32).eps * true.abs().max()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "kernel"), [(Unet, "unet_group_norm_silu"), (ConvNext, "conv_next_mul_add")]
)
def test_a_block_computes_what_its_model_does(kind: type[nn.Module], kernel: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, shapes = kind(), BLOCKS[kind]
    for each in model.parameters():
        each.data.add_(0.3 * torch.randn_like(each))
    network = fusegen.lift(model, [torch.randn(shape) for shape in shapes], folder=tmp_path)
    assert (tmp_path / f"{kernel}.yaml").exists()
    for mode in (True, False):
        for scale in (1e-2, 1.0, 30.0):
            inputs = [scale * torch.randn(3, *shape[1:]) for shape in shapes]
            compare(network.train(mode), model.train(mode), *inputs)


@pytest.mark.full
@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
@pytest.mark.parametrize("mode", [True, False], ids=["training", "evaluation"])
def test_a_sum_is_another_result(norm: Any, mode: bool, tmp_path: Path) -> None:
    model = Transformer(norm).train(mode)
    network = fusegen.lift(model, torch.randn(ROWS, D), folder=tmp_path)
    name = "layer_norm" if norm is nn.LayerNorm else "rms_norm"
    lines = (tmp_path / f"transformer_add_{name}_tanh.yaml").read_text().splitlines()
    assert [line.split(":")[0] for line in lines[-3:]] == ["formula", "  last", "  x_add"]
    assert "self.after(" not in network.code
    for scale in (1e-2, 1.0, 30.0):
        compare(network, model, scale * torch.randn(ROWS, D))


class Rescaled(nn.Module):
    """A norm whose factor is multiplied with what is behind the next layer, too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Any:
        """Return the block."""
        factor = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return self.layer(x * factor) + factor


@pytest.mark.full
def test_a_value_of_each_row_is_another_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for mode in (False, True):
        monkeypatch.setitem(GAINS, ("cpu", "rms_norm", WRITTEN_OUT, 4, mode), Gain(1, 2**20))
    model = Rescaled()
    network = fusegen.lift(model, torch.randn(ROWS, D), folder=tmp_path)
    [spec] = tmp_path.glob("*.yaml")
    lines = spec.read_text().splitlines()
    assert [line.split(":")[0] for line in lines[-3:]] == ["formula", "  last", "  factor"]
    for scale in (1e-2, 1.0, 30.0):
        compare(network, model, scale * torch.randn(ROWS, D))


@pytest.mark.full
def test_copies_and_other_inputs(tmp_path: Path) -> None:
    model = Transformer().eval()
    network = fusegen.lift(model, torch.randn(ROWS, D), folder=tmp_path)
    x = torch.randn(2, 3, D)
    for each in (network, copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        torch.testing.assert_close(each(x[0]), model(x[0]), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(each(x[0].double().float()[:0]), model(x[0])[:0])
        exact = copy.deepcopy(each).double()
        torch.testing.assert_close(exact(x[1].double()), copy.deepcopy(model).double()(x[1].double()))
    assert [*network.state_dict()] == [*model.state_dict()]
    compiled: Any = torch.compile(network, backend="eager")
    torch.testing.assert_close(compiled(x[0]), model(x[0]))


def test_a_norm_that_is_not_faster_is_its_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    for mode in (False, True):
        monkeypatch.delitem(GAINS, ("cpu", "layer_norm", FUSED, 4, mode))
    of = found(Transformer().eval(), (torch.randn(ROWS, D),), device="cpu")
    assert not any(each.region.is_of_rows for each in of.chosen)
    assert {"before", "after"} <= {str(node.target) for node in of.left}


class Early(nn.Module):
    """A sum that is read by what the norm's region reads."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(D, D), nn.LayerNorm(D)

    def forward(self, x: Tensor, y: Tensor) -> Any:
        """Return the block."""
        s = x + y
        return self.norm(s) * self.layer(s)


class Other(Early):
    """A norm of all dimensions."""

    def forward(self, x: Tensor, y: Tensor) -> Any:
        """Return the block."""
        return torch.nn.functional.layer_norm(x + y, (3, D)).relu()


def test_what_is_no_other_result() -> None:
    inputs = [torch.randn(3, D)] * 2
    early = evaluated(found(Early().eval(), inputs, least_passes=1))
    assert early == [["add"], ["layer_norm", "mul"]]
    assert evaluated(found(Other().eval(), inputs, least_passes=1)) == [["add"], ["relu"]]


def test_a_convolution_is_laid_as_the_kernels_behind_it_read_it(tmp_path: Path) -> None:
    """On CUDA: kernels of groups copy channels_last, pointwise ones do not; each adds the bias."""
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3), nn.Hardswish()
    model, x = nn.Sequential(*layers).eval(), torch.randn(2, 3, 9, 9)
    of = found(model, [x], least_passes=1, device="cuda")
    network = lifted_network.network(of, tmp_path, tmp_path)
    modules: dict[str, Any] = dict(network.named_modules())
    laid = {name: each.value.lays.__name__ for name, each in modules.items() if "without_bias" in name}
    of_groups, of_elements = (f"without_bias_of_bias_{each}" for each in ("group_norm_silu", "hardswish"))
    assert laid == {of_groups: "as_they_are", of_elements: "operands"}
    for each in (network, pickle.loads(pickle.dumps(network))):
        torch.testing.assert_close(each(x), model(x), rtol=1e-5, atol=1e-5)
