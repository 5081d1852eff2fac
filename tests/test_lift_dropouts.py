"""Dropouts in the regions of networks and of partial models."""

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from test_lift import problem
from test_partial import body, lift
from torch import Tensor, nn

from fusegen.models.lift.found import found
from fusegen.models.lift.lifted_network import network
from fusegen.models.lift.network import Network


class Block(nn.Module):
    """Dropouts of layers and of functions, between operations and beside other branches."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.dropout, self.other = nn.Dropout(0.25), nn.Dropout(0.5, inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block of x."""
        h = self.dropout(torch.relu(self.up(x)) * 2)
        h = self.down(h)
        early = F.dropout(h.relu(), 0.3, self.training)
        late = self.other(x.abs() + 1)  # draws behind `early`, and is read in front of it
        turned = F.dropout((late * 2 + early).abs().t() * 2, 0.5, self.training)  # draws in this order
        result: Tensor = turned.t() + x
        return result


@pytest.fixture(scope="module")
def lifted(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Network]:
    """Return a model and its network, with a kernel for each region."""
    folder, model = tmp_path_factory.mktemp("regions"), Block()
    return model, network(found(model, [torch.randn(4, 8)], least_passes=1), folder, folder)


@pytest.mark.few(1)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("scale", [1.0, -20.0, torch.inf])
def test_elements_dropped_are_those_of_the_model(
    lifted: tuple[nn.Module, Network], training: bool, scale: float
) -> None:
    model, ours = copy.deepcopy(lifted[0]).train(training), copy.deepcopy(lifted[1]).train(training)
    assert not any(name in ours.code for name in ("functional.dropout(", "self.dropout(", "self.other("))
    results = []
    for each in (model, ours):
        torch.manual_seed(3)
        x = (scale * torch.linspace(0.1, 1, 32).view(4, 8)).requires_grad_()
        y = each(x)
        grads = torch.autograd.grad(y.sum(), [x, *each.parameters()])
        results.append([y, *grads, torch.rand(3)])  # what is drawn behind it
    for theirs, own in zip(*results, strict=True):
        torch.testing.assert_close(own, theirs, equal_nan=True, rtol=1e-5, atol=1e-5)


def test_a_dropout_trains_in_a_network_that_does_not(lifted: tuple[nn.Module, Network]) -> None:
    model, ours = (copy.deepcopy(each).eval() for each in lifted)
    found = []
    for each in (model, ours):
        each.get_submodule("dropout").train()
        torch.manual_seed(1)
        found.append(each(torch.ones(4, 8)))
    torch.testing.assert_close(*found)


def test_a_partial_model_reads_mode_and_probability(tmp_path: Path) -> None:
    init = "n, p|self.a = nn.Linear(n, n); self.drop = nn.Dropout(p); self.p = p"
    forward = "x = self.drop(torch.relu(self.a(x))); return F.dropout(x, self.p, self.training) + 1"
    made = lift(tmp_path, problem(init, forward, arguments="8, 0.25"), 1)
    assert body(made) == [
        "x = relu_dropout(self.a(x), p=self.drop.p, training=self.drop.training)",
        "return dropout_add(x, p=self.p, training=self.training)",
    ]
