"""Batch norms in training in the regions of networks and of partial models."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from test_lift import problem
from test_partial import body, lift, specs
from torch import Tensor, nn

from fusegen.models.lift.found import found
from fusegen.models.lift.lifted_network import network
from fusegen.models.lift.network import Network

SHAPE = (4, 6, 5, 7)


class Block(nn.Module):
    """A norm between operations, one behind a residual, and one alone."""

    def __init__(self, **given: Any) -> None:
        """Make the norms."""
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(6, 6, 1)
        self.bn1, self.bn2 = nn.BatchNorm2d(6, **given), nn.BatchNorm2d(6, eps=1e-3, **given)
        for each in self.parameters():
            each.data += 0.3 * torch.randn_like(each)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block of x."""
        y = torch.relu(self.bn1(x.abs() * 2))
        result: Tensor = torch.relu(self.bn2(self.conv(y)) + y)
        return result


def lifted(model: nn.Module, folder: Path) -> Network:
    """Return the network of a model with a kernel for each region."""
    return network(found(model, [torch.randn(SHAPE)], least_passes=1), folder, folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of specs and modules, which all tests share."""
    return tmp_path_factory.mktemp("regions")


ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"momentum": None},
    {"affine": False, "momentum": 0.25},
    {"track_running_stats": False},
)


@pytest.mark.few(1)
@pytest.mark.parametrize("given", ARGUMENTS)
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_training_is_that_of_the_model(folder: Path, given: dict[str, Any], scale: float) -> None:
    model, exact = Block(**given), Block(**given).double()
    other, network = copy.deepcopy(model), lifted(model, folder)
    assert not any(name in network.code for name in ("self.bn1(", "self.bn2("))
    assert list(network.state_dict()) == list(model.state_dict())
    for step in range(5):
        torch.manual_seed(step)
        x = scale * torch.randn(SHAPE) - scale
        made = []
        for each, own in ((exact, x.double()), (network, x), (other, x)):
            each.train(step != 3)  # once in evaluation
            leaf = own.clone().requires_grad_()
            y = each(leaf)
            weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
            graded = [leaf, *each.parameters()]
            grads = torch.autograd.grad((y * weights).sum(), graded, allow_unused=True)
            made.append([y, *(g for g in grads if g is not None), *each.buffers()])
        for truth, ours, theirs in zip(*made, strict=True):
            wrong, usual = ((each - truth).abs().max() for each in (ours, theirs))
            assert wrong <= 2 * usual + 8 * torch.finfo(torch.float32).eps * (1 + truth.abs().max())


@pytest.mark.full
def test_a_norm_may_be_frozen_and_a_network_copied(folder: Path) -> None:
    model = Block()
    network = lifted(copy.deepcopy(model), folder)
    copies: list[Network] = [network, copy.deepcopy(network), pickle.loads(pickle.dumps(network))]
    x = torch.randn(SHAPE)
    for each in copies:
        other = copy.deepcopy(model)
        for one in (each, other):
            one.get_submodule("bn1").eval()
        torch.testing.assert_close(each(x), other(x))
        assert torch.equal(each.get_buffer("bn1.running_mean"), other.get_buffer("bn1.running_mean"))
        torch.testing.assert_close(each.get_buffer("bn2.running_var"), other.bn2.running_var)
        assert each.get_buffer("bn2.num_batches_tracked") == other.bn2.num_batches_tracked
        each.get_submodule("bn1").train()
        other.bn1.train()


@pytest.mark.full
def test_a_frozen_norm_has_second_derivatives_and_takes_empty_batches(folder: Path) -> None:
    model = nn.Sequential(nn.Tanh(), nn.BatchNorm2d(6), nn.ReLU()).double()
    model.get_buffer("1.running_mean").add_(0.3)
    made = []
    for each in (lifted(copy.deepcopy(model), folder), model):
        each.train()
        each.get_submodule("1").eval()
        leaf = torch.linspace(-1, 1, 24, dtype=torch.float64).view(2, 6, 1, 2).requires_grad_()
        (grad,) = torch.autograd.grad(each(leaf).square().sum(), leaf, create_graph=True)
        made.append([grad, *torch.autograd.grad(grad.square().sum(), leaf), each(leaf[:0])])
    torch.testing.assert_close(*made)


@pytest.mark.full
@pytest.mark.parametrize("kind", [nn.BatchNorm2d, nn.SyncBatchNorm, nn.InstanceNorm2d])
def test_a_layer_with_a_hook_and_another_layer_are_called(folder: Path, kind: type[nn.Module]) -> None:
    model = nn.Sequential(nn.Tanh(), nn.BatchNorm2d(6), nn.ReLU())
    network, seen = lifted(copy.deepcopy(model), folder), list[nn.Module]()
    for each in (network, model):
        layer = kind(6)
        each.add_module("1", layer)
        if kind is nn.SyncBatchNorm:
            layer.forward = lambda x: x.exp()
        layer.register_forward_hook(lambda of, *_: seen.append(of))
    x = torch.randn(SHAPE)
    torch.testing.assert_close(network(x), model(x))
    assert seen == [network.get_submodule("1"), model[1]]


@pytest.mark.full
def test_nan_makes_its_channel_nan_and_shapes_are_refused(folder: Path) -> None:
    model = nn.Sequential(nn.Tanh(), nn.BatchNorm2d(6), nn.ReLU())
    network, x = lifted(copy.deepcopy(model), folder), torch.randn(SHAPE)
    x[1, 2, 3, 4] = torch.nan
    x[0, 0, 0, 0] = torch.inf
    torch.testing.assert_close(network(x), model(x), equal_nan=True)
    ours, theirs = (each.get_buffer("1.running_var") for each in (network, model))
    assert torch.equal(ours.isnan(), theirs.isnan())
    for wrong in (torch.randn(SHAPE[:3]), torch.randn(4, 5, 5, 7), torch.randn(1, 6, 1, 1)):
        for each in (network, model):
            with pytest.raises((ValueError, RuntimeError)):
                each(wrong)


def test_a_partial_model_calls_a_kernel_with_the_layer(tmp_path: Path) -> None:
    init = "n, k|self.a = nn.Linear(n, n); self.bn = nn.BatchNorm1d(n, eps=1e-3); self.k = k"
    forward = "x = torch.tanh(self.a(x)) * self.k; return torch.relu(self.bn(x) * self.k + 1)"
    made = lift(tmp_path, problem(init, forward, arguments="8, 2.0"), 1)
    assert body(made) == [
        "x = tanh_mul(self.a(x), k=self.k)",
        "return batch_norm_mul_add_relu.layer(self.bn, x, self.k, self.bn.eps)",
    ]
    assert "from .batch_norm_mul_add_relu import KERNELS as batch_norm_mul_add_relu\n" in made.text
    assert "over: [0, 2, ...]" in next(
        text for path, text in made.specs.texts.items() if path.stem == "batch_norm_mul_add_relu"
    )
    assert [*specs(made)] == ["tanh_mul", "batch_norm_mul_add_relu"]


LARGE = (64, 64, 56, 56)
WITHOUT_EVERY: dict[str, tuple[tuple[int, ...], torch.dtype, str, list[str]]] = {
    "as many as were timed": (LARGE, torch.float32, "cuda", ["batch_norm_relu"]),
    "16 bits": ((65, *LARGE[1:]), torch.bfloat16, "cuda", ["batch_norm_relu"]),
    "fewer elements": ((63, *LARGE[1:]), torch.float32, "cuda", []),
    "short rows": ((128, 64, 55, 56), torch.float32, "cuda", []),
    "a CPU": (LARGE, torch.float32, "cpu", []),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("case", WITHOUT_EVERY)
def test_large_norms_in_training_are_in_regions_of_cuda(case: str) -> None:
    shape, dtype, device, expected = WITHOUT_EVERY[case]
    model = nn.Sequential(nn.Conv2d(64, 64, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()).to(dtype)
    for memory, names in ((torch.contiguous_format, expected), (torch.channels_last, [])):
        made = found(model, [torch.empty(shape, dtype=dtype).to(memory_format=memory)], device=device)
        training = made.modes.graphs[0]
        chosen = [each for each in made.chosen if each.region.result.graph is training]
        assert [each.title for each in chosen if each.region.layer] == names
