"""Layers, calls and transforms of which the call in C++ leaves the result to Python, or which it reads."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_compiled_call import Mode, Subclass
from test_compiled_call import library as library
from test_compiled_layers import ADDED, RELU, Both, assert_same, drawn_layer
from test_compiled_layers import in_cpp as in_cpp
from test_compiled_losses import same
from torch import Tensor, nn

from generated.kernelbench import conv2d_batch_norm_scale

F64 = torch.float64
parametrize: Any = nn.utils.parametrize


def with_a_class(layer: Any) -> None:
    layer._parameters["weight"] = nn.Parameter(layer.weight.detach().as_subclass(Subclass))


def with_statistics_of_autograd(layer: Any) -> None:
    layer.running_mean.requires_grad_()


def with_one_buffer(layer: Any) -> None:
    layer.running_var = layer.running_mean


def with_numbers_apart(layer: Any) -> None:
    layer.running_mean = torch.zeros(6)[::2]


def parametrized(layer: Any) -> None:
    parametrize.register_parametrization(layer, "weight", nn.Softplus())


# what Python computes: a layer that was changed
CHANGED: dict[str, Callable[[Any], Any]] = {
    "the average of all": lambda layer: setattr(layer, "momentum", None),
    "another class of tensors": with_a_class,
    "statistics that require a gradient": with_statistics_of_autograd,
    "statistics of one memory": with_one_buffer,
    "statistics that lie apart": with_numbers_apart,
    "other statistics": lambda layer: setattr(layer, "running_var", torch.ones(3, dtype=F64)),
    "a bias of another dtype": lambda layer: setattr(layer, "bias", nn.Parameter(torch.ones(3, dtype=F64))),
    "a parametrization": parametrized,
    "a number as a mode": lambda layer: setattr(layer, "training", 1),
}


@pytest.mark.parametrize("kind", CHANGED)
def test_other_layers_are_left_to_python(kind: str) -> None:
    both, x = Both(RELU), torch.randn(4, 3, 5)
    layers = [drawn_layer(RELU, 3) for _ in range(2)]
    for layer in layers:
        CHANGED[kind](layer)
    results = [
        call(layer, x).detach() for call, layer in zip((both.call, both.python), layers, strict=True)
    ]
    assert both.left == 1
    of_each = [[result, *layer.buffers()] for result, layer in zip(results, layers, strict=True)]
    assert_same(*[[t.detach() for t in each] for each in of_each])


def test_other_calls_are_left_to_python() -> None:
    both, layer, x = Both(ADDED), drawn_layer(ADDED, 3), torch.randn(4, 3, 5)
    calls = [(x, x[:1]), (x, x.double()), (x[:0], x[:0]), (x.as_subclass(Subclass), x), (x, x.to("meta"))]
    for k, given in enumerate(calls[:-1]):
        own, other = copy.deepcopy(layer), copy.deepcopy(layer)
        torch.testing.assert_close(both.call(own, *given), both.python(other, *given))
        assert both.left == k + 1
        assert_same([*own.buffers()], [*other.buffers()])
    with Mode():
        both.call(layer, x, x)
    assert both.left == len(calls)
    messages = [
        (x[0, 0], "expected a tensor of 2 dimensions or more, the second of which are channels"),
        (x[:, :2], "expected 3 channels, of num_features, and dimension 1 has 2"),
        (x[:1, :, :1], r"expected more than one value for each channel in training, .*\(1, 3, 1\)"),
    ]
    before = copy.deepcopy(layer.state_dict())
    for t, message in messages:
        with pytest.raises((RuntimeError, ValueError), match=f"^batch_norm_add_relu: {message}$"):
            both.call(layer, t, t)
    torch.testing.assert_close(layer.state_dict(), before, rtol=0, atol=0)
    both.left = 0
    layer.eval()
    assert same(
        both.call(layer, x[:1, :, :1], x[:1, :, :1]), both.python(layer, x[:1, :, :1], x[:1, :, :1])
    )
    assert both.left == 0


def test_a_layer_of_torch_takes_tensors_of_its_ranks() -> None:
    both = Both(RELU)
    kinds = {nn.BatchNorm1d: (2, 3), nn.BatchNorm2d: (4,), nn.BatchNorm3d: (5,)}
    for (kind, ranks), rank in itertools.product(kinds.items(), range(2, 6)):
        own, other = kind(3), kind(3)
        x, both.left = torch.randn(3, 3, 3, 3, 3)[(0,) * (5 - rank)], 0
        if rank in ranks:
            assert same(both.call(own, x), both.python(other, x))
            assert_same([*own.buffers()], [*other.buffers()])
        else:
            with pytest.raises(ValueError, match=f"got {rank}D input"):
                both.call(own, x)
        assert both.left == (rank not in ranks)


@pytest.mark.full
def test_a_layer_with_scalars() -> None:
    both = Both(conv2d_batch_norm_scale)
    layers, x = [nn.BatchNorm2d(3), nn.BatchNorm2d(3)], torch.randn(2, 3, 4, 4)
    own, other = (
        call(layer, x, 2.0, 1e-3) for call, layer in zip((both.call, both.python), layers, strict=True)
    )
    assert same(own.detach(), other.detach())
    assert both.left == 0


@pytest.fixture
def in_front(monkeypatch: pytest.MonkeyPatch) -> Both:
    """The call in C++ in front of the layers of a module, as if it had been there at its import."""
    both = Both(RELU)
    monkeypatch.setattr(both.kernels, "layer", both.call)
    return both


def test_compiled_and_exported_layers(in_front: Both) -> None:
    layer, x = drawn_layer(RELU, 3), torch.randn(4, 3, 5)
    other, third = copy.deepcopy(layer), copy.deepcopy(layer)
    torch.compiler.reset()
    compiled: Any = torch.compile(layer, fullgraph=True, backend="aot_eager")
    program: Any = torch.export.export(third, (x,)).module()
    for _ in range(2):
        wanted = other(x)
        torch.testing.assert_close(compiled(x), wanted)
        torch.testing.assert_close(program(x), wanted)
    torch.testing.assert_close(layer.state_dict(), other.state_dict())
    torch.testing.assert_close(program.state_dict()["running_var"], other.running_var)


def test_transforms_copies_and_pickles(in_front: Both) -> None:
    layer, x = drawn_layer(RELU, 3).eval(), torch.randn(2, 4, 3, 5)
    mapped = torch.func.vmap(layer)(x)
    assert in_front.left == 1
    torch.testing.assert_close(mapped, torch.stack([layer(t) for t in x]))

    def loss(state: dict[str, Tensor]) -> Tensor:
        result: Tensor = torch.func.functional_call(layer, state, (x[0],)).sin().sum()
        return result

    state = dict(layer.named_parameters())
    found = torch.func.grad(loss)({name: t.detach() for name, t in state.items()})
    wanted = torch.autograd.grad(layer(x[0]).sin().sum(), [*state.values()])
    torch.testing.assert_close([*found.values()], [*wanted])
    scaled = {name: t * 2 for name, t in state.items()}
    twice = copy.deepcopy(layer)
    with torch.no_grad():
        for parameter in twice.parameters():
            parameter.mul_(2)
    before = in_front.left
    assert same(loss(scaled).detach(), twice(x[0]).sin().sum().detach())
    assert in_front.left == before
    for each in (twice, pickle.loads(pickle.dumps(twice))):
        assert same(each(x[0]).detach(), twice(x[0]).detach())


def test_parameters_and_buffers_are_read_by_each_call(in_front: Both) -> None:
    """Also those that were written without a new version, as by `.data` or another process."""
    layer, x = drawn_layer(RELU, 3).eval(), torch.randn(4, 3, 5)
    layer(x)
    for t in (layer.weight, layer.bias, layer.running_mean, layer.running_var):
        t.data.add_(0.5)
        assert same(layer(x).detach(), in_front.python(layer, x).detach())
    assert in_front.left == 0
