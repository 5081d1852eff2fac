"""Reductions of rows in the regions of a network."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_patch_rows import LENGTH, CastRms, WrittenOut
from torch import Tensor, fx, nn

import fusegen
from fusegen.models.lift.found import Found, found
from fusegen.models.lift.regions.partition import SLOWER

ROWS = 3000  # so many that a kernel is known to be faster on a CPU in 16 bits


class Gated(nn.Module):
    """A norm of a sum, and a gated layer behind it."""

    def __init__(self, norm: type[nn.Module] = CastRms) -> None:
        """Make the layers."""
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.gate, self.up = norm(), nn.Linear(LENGTH, LENGTH), nn.Linear(LENGTH, LENGTH)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return the gated norm of a sum."""
        h = self.norm(x + residual)
        result: Tensor = nn.functional.silu(self.gate(h)) * self.up(h)
        return result


class Body(nn.Module):
    """A forward of a function."""

    def __init__(self, function: Any) -> None:
        """Keep the function."""
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Return the function of x."""
        result: Tensor = self.function(x)
        return result


def regions(function: Any, x: Tensor) -> list[tuple[int, bool]]:
    """Return how many operations each region has that is in a kernel, and whether it reduces rows."""
    return [(len(each.region.parts), each.region.is_of_rows) for each in every(Body(function), x).chosen]


def every(model: nn.Module, *inputs: Tensor) -> Found:
    """Return the regions of a model, each with a kernel."""
    return found(model.eval(), inputs, least_passes=1)


X = torch.randn(4, 6, 8)
CASES: dict[str, tuple[Any, list[tuple[int, bool]]]] = {
    "a norm": (lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), [(5, True)]),
    "softmax of a sum": (lambda x: torch.softmax(x * 0.5 + 1, -1), [(3, True)]),
    "by place": (lambda x: x - x.amax(2, True), [(2, True)]),
    "a variance": (lambda x: x * x.var(-1, unbiased=False, keepdim=True), [(2, True)]),
    "another dimension": (lambda x: x * x.mean(1, keepdim=True), [(2, True)]),
    "two dimensions": (lambda x: x * x.mean((1, 2), keepdim=True), [(2, True)]),
    "dimensions apart": (lambda x: x * x.mean((0, 2), keepdim=True), [(1, False)]),
    "all dimensions": (lambda x: x * x.mean(), [(1, False)]),
    "rows of two kinds": (lambda x: torch.softmax(torch.softmax(x * 2, 1), 2), [(2, True), (1, True)]),
    "to a value a row": (lambda x: x.exp().mean(-1, keepdim=True), [(2, True)]),
    "behind a value a row": (lambda x: torch.rsqrt(x.mean(-1, keepdim=True) + 1), [(3, True)]),
    "without the dimension": (lambda x: x.sum(-1).exp(), [(2, True)]),
    "beside elements of the result": (
        lambda x: torch.relu(x.exp().sum(1, keepdim=True) * 2 + x[:, :1]),
        [(3, True), (2, False)],
    ),
    "elements of a row at another place": (
        lambda x: x[:, :4, :4] * x[:, :4, :4].mean(1),
        [(1, True), (1, False)],
    ),
    "a fold of a fold": (lambda x: x.exp().mean(1, True).amax(1, True), [(2, True), (1, True)]),
    "a row of a smaller tensor": (lambda x: x * x[:1].mean(-1, keepdim=True), [(1, True), (1, False)]),
    "a pool to one number": (
        lambda x: x[None] * F.adaptive_avg_pool2d(x.tanh(), 1)[None],
        [(2, True), (1, False)],
    ),
    "groups": (lambda x: F.silu(F.group_norm(x * 2, 3)) + 1, [(4, True)]),
    "instances": (lambda x: F.silu(F.instance_norm(x * 2)) + 1, [(4, True)]),
    "a pooling": (lambda x: F.max_pool2d(x * 2, 2).tanh() + 1, [(4, False)]),
    "two poolings": (lambda x: F.avg_pool1d(F.max_pool1d(x * 2, 2), 2), [(2, False), (1, False)]),
    "a value on both sides of a pooling": (
        lambda x: F.max_pool2d(x * 2, 3, 1, 1).relu() + x,
        [(2, False), (2, False)],
    ),
    "rows behind a pooling": (lambda x: F.max_pool1d(x * 2, 2).softmax(1), [(2, False), (1, True)]),
    "a permutation": (lambda x: (x.permute(2, 0, 1) * 2).permute(1, 2, 0) + x, [(2, False)]),
    "a permutation behind rows": (lambda x: torch.softmax(x, 2).transpose(0, 1).tanh() * 2, [(3, True)]),
    "a reshape": (lambda x: (x * 2).flatten(1).relu() + 1, [(3, False)]),
    "squeezed behind rows": (lambda x: torch.softmax(x.unsqueeze(1), -1).squeeze(1) * x + 1, [(3, True)]),
    "groups beside rows": (lambda x: F.group_norm(torch.softmax(x, 2), 3), [(1, True), (1, True)]),
    "of integers": (lambda x: x * x.long().sum(-1, keepdim=True), []),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_region_reduces(name: str) -> None:
    function, expected = CASES[name]
    assert regions(function, X) == expected


def test_a_value_of_each_row_beside_elements_of_another_place() -> None:
    cube = torch.randn(8, 8, 8)  # in which the product has other dimensions than the rows
    assert regions(lambda x: x * (x.mean(-1) * x[0]), cube) == [(1, True), (2, False)]


RESULTS: dict[str, tuple[Any, list[int]]] = {  # with how many results each region has
    "the largest element": (lambda x: (m := x.amax(-1, True), x - m), [2]),
    "a logsumexp": (lambda x: (s := (x * 2).logsumexp(-1, True), (x * 2 - s).exp()), [2]),
    "behind a mean": (lambda x: (m := x.mean(-1, True).exp(), (x - m).tanh()), [2]),
    "a value that two regions read": (
        lambda x: (m := x.amax(-1, True), x - m, m.relu().exp().sum(0)),
        [2, 1],
    ),
    "a value of several rows": (lambda x: (m := x[:1, :1].sin(), (x - m).tanh() * 2), [1, 1]),
    "a value that the result is no element beside": (
        lambda x: (m := x.mean(-1, True), m.exp() + m.tanh()),
        [1, 1],
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_values_of_rows_beside_elements_of_a_result(name: str) -> None:
    function, expected = RESULTS[name]
    chosen = every(Body(function), torch.randn(4, 6, 16)).chosen
    assert [len(each.region.results) for each in chosen] == expected


MOVES: dict[str, Any] = {
    "behind a pooling": lambda x: F.max_pool2d(x * 2, 2).permute(0, 2, 3, 1).tanh(),
    "reshaped behind a pooling": lambda x: F.avg_pool2d(x, 3, 1, 1).reshape(4, 8, 36).tanh(),
    "between rows and a pooling": lambda x: F.max_pool2d(x.softmax(1).transpose(1, 3), 3, 1, 1).tanh(),
    "without a dimension of size 1": lambda x: x.softmax(1).squeeze(1) * x.sin(),
    "of several dimensions": lambda x: x[None].softmax(2).squeeze((0,)) * x.sin(),
    "of one": lambda x: x[None].softmax(2).squeeze(0) * x.sin(),
    "written in place": lambda x: ((x + x.sin()).permute(0, 2, 3, 1).relu_() * 2).mul_(3),
    "behind rows": lambda x: (x.softmax(1).transpose(1, 2) * x.sin().transpose(1, 2)).sum(1),
}


@pytest.mark.parametrize("name", MOVES)
def test_moved_views_keep_values(name: str) -> None:
    model, x = Body(MOVES[name]), torch.randn(4, 8, 6, 6)
    moved = fx.GraphModule(model, every(model, x).modes.graphs[-1])
    torch.testing.assert_close(moved(x)[0], model(x))


class Narrow(nn.Module):
    """A batch norm that is worth no kernel, in front of a view, and one that is."""

    def __init__(self) -> None:
        """Make the norms."""
        super().__init__()
        self.small, self.large = nn.BatchNorm2d(8), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return both."""
        return self.small(x[:1, :, :2, :2]).permute(0, 2, 3, 1).relu(), self.large(x).relu() * 2


def test_a_batch_norm_that_stays_a_layer_has_its_channels() -> None:
    model, x = Narrow().eval(), torch.randn(8, 8, 32, 32)
    of = found(model, (x,), device="cpu")
    assert [len(each.region.parts) for each in of.chosen if each.region.result.graph is of.modes.graphs[-1]]
    torch.testing.assert_close(fx.GraphModule(model, of.modes.graphs[-1])(x), model(x))


def test_a_smaller_value_is_computed_in_the_region() -> None:
    gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Hardsigmoid())
    pool = (1, True)
    assert regions(lambda x: x * gate(x), torch.randn(2, 8, 8, 8)) == [pool, (2, False)]
    assert regions(lambda x: x * gate(x), torch.randn(2, 8, 2, 2)) == [pool, (1, False), (1, False)]


def test_casts_are_in_a_region_of_one_dtype() -> None:
    def cast(x: Tensor) -> Tensor:
        return (x.float().exp() + 1).to(x.dtype) * x

    assert regions(cast, X.bfloat16()) == [(5, False)]
    assert regions(lambda x: (x.float() + 1).exp(), X.bfloat16()) == [(2, False)]
    assert regions(lambda x: (x.float().exp() + 1).half() * x, X.bfloat16())[-1] != (5, False)


@pytest.mark.full
@pytest.mark.parametrize("norm", [CastRms, WrittenOut])
def test_a_norm_in_a_network(norm: type[nn.Module], tmp_path: Path) -> None:
    model = Gated(norm).bfloat16().eval()
    x, y = (torch.randn(ROWS, LENGTH, dtype=torch.bfloat16) for _ in range(2))
    network = fusegen.lift(model, (x, y), folder=tmp_path)
    specs = [path.read_text() for path in tmp_path.glob("*.yaml")]
    assert sum("over: [-1]" in text for text in specs) == 1
    exact = copy.deepcopy(model).double()(x.double(), y.double())
    ours, eager = ((each(x, y).double() - exact).abs().max() for each in (network, model))
    assert ours <= eager + 2 * torch.finfo(torch.bfloat16).eps * exact.abs().max()
    for mode in (network.train(), network.eval()):
        mine = [each.clone().requires_grad_() for each in (x, y)]
        other = [each.clone().requires_grad_() for each in (x, y)]
        (mode(*mine).float().square().sum()).backward()
        (model(*other).float().square().sum()).backward()
        for one, two in zip(mine, other, strict=True):
            assert one.grad is not None
            assert two.grad is not None
            torch.testing.assert_close(one.grad, two.grad, rtol=0.1, atol=0.1 * float(two.grad.abs().max()))
    small = network(x[:3], y[:3])
    torch.testing.assert_close(small, model(x[:3], y[:3]), rtol=0.05, atol=0.05)


def test_a_norm_that_is_not_faster_stays() -> None:
    of = found(Gated().eval(), (torch.randn(ROWS, LENGTH), torch.randn(ROWS, LENGTH)), device="cpu")
    assert SLOWER in of.left.values()
    assert not any(each.region.is_of_rows for each in of.chosen)
