"""Standalone files of channels with the statistics of a batch: on the CPU and, emulated, on CUDA."""

from __future__ import annotations

import copy

import pytest
import torch
from standalone_files import (
    NAMES,
    TESTED,
    assert_near,
    drawing,
    emulate,
    executed,
)
from torch import Tensor, nn

MODELS = {"batches/batch_norm_relu": 1, "batches/batch_norm_add_relu": 2, "batches/batch_norm_gelu": 1}
SHAPES = [(4, 6, 5, 7), (9, 6), (3, 6, 400), (2, 6, 2, 4, 2)]


def results(model: nn.Module, given: list[Tensor]) -> list[Tensor]:
    """The result of a model, the gradients of tensors and parameters, and the buffers."""
    own = [t.detach().requires_grad_() for t in given]
    y = model(*own)
    wanted = (torch.arange(y.numel()) % 29 - 11).div(8).reshape(y.shape).to(y.dtype)
    slopes = torch.autograd.grad(y, [*own, *model.parameters()], wanted)
    buffers = [b for b in model.buffers() if b.is_floating_point()]
    return [y.detach(), *slopes, *(b.clone() for b in buffers)]


def assert_right(name: str) -> None:
    """Models of float64 are PyTorch's operations."""
    _, space = executed(name, *NAMES)
    for dtype in TESTED:
        for k, shape in enumerate(SHAPES):
            torch.manual_seed(k)
            model = space["ModelNew"](6).to(dtype)
            draw = drawing(dtype, k)
            given = [draw(*shape) * 3 + 20 for _ in range(MODELS[name])]
            exact = copy.deepcopy(model).double()
            for training in (True, False):
                model.train(training), exact.train(training)
                own, wide = results(model, given), results(exact, [t.double() for t in given])
                assert_near(own, wide, 10)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", MODELS)
def test_channels_on_the_cpu(name: str) -> None:
    assert_right(name)


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_channels_on_an_emulated_chip(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, name, *NAMES)
    assert_right(name)


def test_channels_last_and_errors() -> None:
    _, space = executed("batches/batch_norm_relu", *NAMES)
    model = space["ModelNew"](6)
    x = torch.randn(3, 6, 4, 5)
    exact = nn.functional.batch_norm(x.double(), None, None, training=True).relu()
    for given in (x, x.contiguous(memory_format=torch.channels_last), x.transpose(2, 3).contiguous().mT):
        assert_near([model(given).detach()], [exact])
    with pytest.raises(ValueError, match="expected more than one value for each channel in training"):
        model(torch.randn(1, 6))
    for shape in ((3, 4), (3,)):
        for training in (True, False):
            one = space["ModelNew"](1).train(training)
            with pytest.raises(ValueError, match="expected 1 channels in dimension 1, got an input of"):
                one(torch.randn(shape))
    weight = torch.ones(6, device="meta")
    with pytest.raises(RuntimeError, match="meta"):
        space["batch_norm_relu"](x, weight, weight)


def test_second_derivatives_of_channels() -> None:
    _, space = executed("batches/batch_norm_relu", *NAMES)
    found = []
    for dtype in (torch.float32, torch.float64):
        draw = drawing(dtype)
        x, weight, bias = draw(4, 3).requires_grad_(), draw(3).requires_grad_(), draw(3)
        y = space["batch_norm_relu"](x, weight, bias)
        [slope] = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        found.append([*torch.autograd.grad(slope.square().sum(), [x, weight])])
    torch.testing.assert_close([t.double() for t in found[0]], found[1], rtol=1e-3, atol=1e-4)
