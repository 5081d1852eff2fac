"""Batch norms in evaluation as operations of a region."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fusegen
from fusegen.models.lift.found import found
from fusegen.models.lift.network import Network

X = (4, 8, 16, 16)


class Block(nn.Module):
    """Two convolutions with norms, a residual and an activation."""

    def __init__(self, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        """Make the layers, with statistics as after training."""
        super().__init__()
        torch.manual_seed(0)
        self.conv1, self.bn1 = nn.Conv2d(8, 8, 3, padding=1, bias=False), norm(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1), norm(8)
        self.relu = nn.ReLU(inplace=True)
        for each in (self.bn1, self.bn2):
            for tensor in (*each.parameters(), *each.buffers()):
                if tensor.is_floating_point():
                    tensor.data.copy_(0.5 + torch.rand_like(tensor))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block of x."""
        y = self.relu(self.bn1(self.conv1(x)))
        result: Tensor = self.relu(self.bn2(self.conv2(y)) + x)
        return result


def lifted(model: nn.Module, folder: Path) -> Network:
    network: Network = fusegen.lift(model, torch.randn(X), folder=folder)
    return network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of specs and modules, which all tests share."""
    return tmp_path_factory.mktemp("regions")


def test_a_norm_is_in_the_kernel_in_evaluation(folder: Path) -> None:
    model = Block()
    network = lifted(model, folder)
    assert {path.stem for path in folder.glob("*.yaml")} == {
        "block_add_relu",  # in training
        "block_batch_norm_relu",
        "block_batch_norm_add_relu",
    }
    network.eval()
    model.eval()
    assert "self.bn1(" not in network.code
    x = torch.randn(X)
    truth = copy.deepcopy(model).double()(x.double())
    ours, eager = ((each(x) - truth).abs().max() for each in (network, model))
    assert ours <= 2 * eager + 4 * torch.finfo(torch.float32).eps * truth.abs().max()


def test_training_runs_the_layer(folder: Path) -> None:
    model, other = Block(), Block()
    network = lifted(model, folder)
    for each in (network, other):
        each.train()
        for seed in range(3):
            torch.manual_seed(seed)
            each(torch.randn(X)).square().mean().backward()
    assert "self.bn1(" in network.code
    for ours, theirs in zip(network.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)
    for ours, theirs in zip(network.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    x = torch.randn(X)
    torch.testing.assert_close(network.eval()(x), other.eval()(x), rtol=1e-4, atol=1e-5)


def test_gradients_in_evaluation(folder: Path) -> None:
    model = Block().eval()
    network = lifted(model, folder)
    found: list[Any] = []
    for each in (network, copy.deepcopy(model)):
        x = torch.ones(X).mul(0.3).requires_grad_()
        found.append(torch.autograd.grad(each(x).square().sum(), [x, *each.parameters()]))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


def test_statistics_that_are_loaded_later_count(folder: Path) -> None:
    model = Block().eval()
    network, x = lifted(model, folder), torch.randn(X)
    state = {
        name: each + 1 if each.is_floating_point() else each for name, each in model.state_dict().items()
    }
    network.load_state_dict(state)
    torch.testing.assert_close(network(x), model(x), rtol=1e-4, atol=1e-4)
    copies: list[Network] = [copy.deepcopy(network), pickle.loads(pickle.dumps(network))]
    for again in copies:
        assert torch.equal(again(x), network(x))
        again.get_buffer("bn1.running_mean").zero_()
        assert not torch.equal(again(x), network(x))


def test_a_norm_that_trains_in_a_network_that_does_not(folder: Path) -> None:
    model = Block().eval()
    network, x = lifted(model, folder), torch.randn(X)
    network.get_submodule("bn1").train()
    other = copy.deepcopy(model)
    with pytest.warns(UserWarning, match="the model itself runs"):
        ours = network(x)
    assert torch.equal(ours, other(x))


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.register_forward_hook(lambda *_: None),
        lambda layer: layer.double(),
        lambda layer: setattr(layer, "bias", None),
    ],
    ids=["a hook", "another dtype", "no bias"],
)
def test_norms_that_stay_layers(change: Callable[[Any], Any]) -> None:
    model = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU()).eval()
    change(model[0])
    x = torch.randn(X, dtype=torch.float64 if model[0].weight.dtype == torch.float64 else torch.float32)
    taken = [each.title for each in found(model, (x,)).chosen]
    assert taken == (["batch_norm_relu"] if x.dtype == torch.float64 else [])


def test_a_norm_alone_stays_a_layer() -> None:
    model = nn.Sequential(
        nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.MaxPool2d(2), nn.ReLU(), nn.Tanh()
    ).eval()
    of = found(model, (torch.randn(X),))
    assert [each.title for each in of.chosen] == ["relu_tanh"]
    assert any(node.op == "call_module" and node.target == "1" for node in of.left)


def test_norms_without_a_weight_or_without_statistics() -> None:
    for norm, titles in (
        (nn.BatchNorm2d(8, affine=False), ["batch_norm_relu"]),
        (nn.BatchNorm2d(8, track_running_stats=False), []),
    ):
        model = nn.Sequential(nn.Conv2d(8, 8, 1), norm, nn.ReLU()).eval()
        assert [each.title for each in found(model, (torch.randn(X),)).chosen] == titles
