"""A layer with the statistics of batches by the call in C++ has the bits of the one in Python."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from test_compiled_call import CALLS
from test_compiled_call import library as library
from test_compiled_losses import same
from torch import Tensor, nn

import generated._runtime
from fusegen.runtime import compiled_call
from generated.batches import batch_norm_add_relu, batch_norm_relu

LAYERS = generated._runtime.batch_layers.LAYERS
F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
Call = Callable[..., Any]


class Both:
    """The calls of a module's layers by C++ and by Python, with the number of those that C++ leaves."""

    made: Any = None  # of the library

    def __init__(self, module: Any) -> None:
        self.kernels, self.left = module.KERNELS, 0
        self.python: Call = self.kernels.by_python

        def python(*arguments: Any) -> Any:
            self.left += 1
            return self.python(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CALLS, "loaded", lambda: self.made)
            self.call: Call = CALLS.in_front_of_layer(self.kernels, python, LAYERS)
        assert self.call is not python


@pytest.fixture(scope="module", autouse=True)
def in_cpp(library: Any) -> None:
    Both.made = compiled_call.imported(library)


RELU, ADDED = batch_norm_relu, batch_norm_add_relu
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "large momentum": {"momentum": 0.7, "eps": 1e-3},
    "an integer as momentum": {"momentum": 1},
    "no weight": {"affine": False},
    "no statistics": {"track_running_stats": False},
}


def drawn_layer(module: Any, count: int, **options: Any) -> Any:
    torch.manual_seed(1)
    layer = module.ModelNew(count, **options)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer


def steps(
    call: Call, layer: Any, shape: tuple[int, ...], dtype: torch.dtype, tensors: int = 1
) -> list[Any]:
    """Return the results and gradients of three steps, then the buffers and how often they were written."""
    generator = torch.Generator().manual_seed(2)
    found = []
    for _ in range(3):
        given = [(torch.randn(shape, generator=generator) * 3 + 1).to(dtype) for _ in range(tensors)]
        leaves = [t.requires_grad_() for t in given]
        result = call(layer, *leaves)
        grad = torch.randn(shape, generator=generator).to(dtype)
        found += [result.detach(), *torch.autograd.grad(result, [*leaves, *layer.parameters()], grad)]
        with torch.no_grad():
            found.append(call(layer, *leaves))
    return [*found, *layer.buffers(), [b._version for b in layer.buffers()]]


def assert_same(found: list[Any], wanted: list[Any]) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert same(a, b) and a.dtype == b.dtype if isinstance(a, Tensor) else a == b


@pytest.mark.few(6)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("of_numbers", [F32, F64, BF16])
@pytest.mark.parametrize("dtype", [F32, F64, BF16, F16])
@pytest.mark.parametrize("module", [RELU, ADDED])
def test_bits_are_those_of_python(
    module: Any, dtype: torch.dtype, of_numbers: torch.dtype, options: str, training: bool
) -> None:
    both = Both(module)
    for shape in ((2, 3), (4, 6, 5), (2, 37, 3, 3)):
        layers = [drawn_layer(module, shape[1], dtype=of_numbers, **OPTIONS[options]) for _ in range(2)]
        of_each = [
            steps(call, layer.train(training), shape, dtype, both.kernels.elements)
            for call, layer in zip((both.call, both.python), layers, strict=True)
        ]
        assert both.left == 0
        assert_same(*of_each)


@pytest.mark.parametrize("momentum", [0.1, 0.5, 0.9, 1.0])
def test_statistics_are_those_of_pytorch(momentum: float) -> None:
    both, other = Both(RELU), nn.BatchNorm2d(6, momentum=momentum).double()
    layer = RELU.ModelNew(6, momentum=momentum).double()
    for each in (layer, other):  # of large statistics a rounding by another formula shows
        each.get_buffer("running_mean").fill_(1e12)
        each.get_buffer("running_var").fill_(1e12)
    by_python = copy.deepcopy(layer)
    for training in [True] * 5 + [False]:
        layer.train(training)
        x = torch.randn(4, 6, 5, 5, dtype=F64) * 2 + 1
        both.python(by_python.train(training), x)
        torch.testing.assert_close(both.call(layer, x), other.train(training)(x).relu())
        torch.testing.assert_close(layer.state_dict(), other.state_dict(), rtol=1e-14, atol=1e-14)
    assert_same([*layer.buffers()], [*by_python.buffers()])
    assert layer.num_batches_tracked == 5
    assert both.left == 0


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("of_numbers", [F32, F64])
def test_second_derivatives_reach_the_parameters(of_numbers: torch.dtype, training: bool) -> None:
    both, of_each = Both(RELU), []
    for call in (both.call, both.python):
        layer = drawn_layer(RELU, 3, dtype=of_numbers).train(training)
        x = torch.randn(4, 3, 5, dtype=F64, generator=torch.Generator().manual_seed(1)).requires_grad_()
        leaves = [x, layer.weight, layer.bias]
        weight = layer.weight * 2  # which is no leaf
        layer._parameters["weight"] = weight
        first = torch.autograd.grad(call(layer, x).square().sum(), leaves, create_graph=True)
        assert [g.dtype for g in first] == [F64, of_numbers, of_numbers]
        of_each.append([*first, *torch.autograd.grad([g.square().sum() for g in first], leaves)])
    assert both.left == 0
    assert_same(*of_each)
    assert all(g.detach().count_nonzero() > 0 for g in of_each[0])


def test_what_needs_no_gradient_gets_none() -> None:
    both, x = Both(RELU), torch.randn(4, 3, 5)
    layer = drawn_layer(RELU, 3)
    layer.bias.requires_grad_(False)
    both.call(layer, x).sum().backward()
    assert layer.bias.grad is None
    other = copy.deepcopy(layer)
    other.weight.grad = None
    both.python(other, x).sum().backward()
    assert torch.equal(layer.weight.grad, other.weight.grad)
    layer.weight.requires_grad_(False)
    assert not both.call(layer, x).requires_grad
    assert both.left == 0


def test_what_was_saved_may_not_change_but_for_numbers_that_were_converted() -> None:
    both, x = Both(RELU), torch.randn(4, 3, 5)
    for layer, refused in ((drawn_layer(RELU, 3), False), (drawn_layer(RELU, 3, dtype=F64), True)):
        result = both.call(layer, x)
        with torch.no_grad():
            layer.weight.mul_(2)
        if refused:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                result.sum().backward()
        else:
            result.sum().backward()
    leaf = x.clone().requires_grad_()
    moved = leaf * 1
    result = both.call(drawn_layer(RELU, 3), moved)
    moved.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_a_batch_of_gradients_and_compiled_autograd() -> None:
    both, layer = Both(RELU), drawn_layer(RELU, 3)
    x = torch.randn(4, 3, 5, requires_grad=True)
    leaves, many = [x, *layer.parameters()], torch.randn(2, 4, 3, 5)
    alone = [torch.autograd.grad(both.python(layer, x), leaves, each) for each in many]
    batch = torch.autograd.grad(both.call(layer, x), leaves, many, is_grads_batched=True)
    for found, *wanted in zip(batch, *alone, strict=True):
        torch.testing.assert_close(found, torch.stack(wanted))
    result = both.call(layer, x)
    with torch._dynamo.compiled_autograd._enable(partial(torch.compile, backend="eager")):
        result.backward(many[0])
    assert_same([leaf.grad for leaf in leaves], list(alone[0]))
    assert both.left == 0


def test_hooks_see_what_is_saved() -> None:
    both, layer, seen = Both(RELU), drawn_layer(RELU, 3), []
    x = torch.randn(4, 3, 5, requires_grad=True)
    layer.weight.register_hook(lambda grad: grad * 2)

    def pack(t: Tensor) -> Tensor:
        seen.append((tuple(t.shape), t.dtype))
        return t.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = both.call(layer, x)
    assert seen == [((4, 3, 5), F32), ((3,), F64), ((3,), F64), ((3, 2), F64)]
    found, wanted = (
        torch.autograd.grad(each.sum(), [x, layer.weight]) for each in (result, both.python(layer, x))
    )
    assert_same(list(found), list(wanted))
    assert both.left == 0


def operations(call: Call) -> list[str]:
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return [event.name for event in profile.events() if "::" in event.name and "autograd" not in event.name]


def test_a_call_runs_the_kernels_alone() -> None:
    """Numbers of channels are converted, and statistics moved, without operations of tensors."""
    both, layer = Both(RELU), drawn_layer(RELU, 3)
    x = torch.randn(4, 3, 5, requires_grad=True)
    space = both.kernels.operators.name
    forward, backward = (f"{space}::batch_norm_relu_{kernel}" for kernel in ("forward", "backward"))

    def work(names: list[str]) -> list[str]:
        return [name for name in names if name != "aten::empty"]

    assert work(operations(lambda: both.call(layer, x))) == [forward]
    result = both.call(layer, x)
    grads = partial(torch.autograd.grad, result, [x, *layer.parameters()], torch.ones_like(x), True)
    assert work(operations(grads)) == [backward] * 2  # the node of autograd, and the operator
    layer.eval()
    assert work(operations(lambda: both.call(layer, x))) == [forward]


def test_numbers_on_other_devices_take_few_operations() -> None:
    """Those of 16 bits take on a CPU what all take on a GPU, where an operation is a launch."""
    both, layer = Both(RELU), drawn_layer(RELU, 3, dtype=BF16)
    x = torch.randn(4, 3, 5)
    with torch.no_grad():
        names = operations(lambda: both.call(layer, x))
    assert [names.count(f"aten::{name}") for name in ("_foreach_copy_", "mul", "lerp")] == [1, 1, 2]
    with torch.no_grad():
        names = operations(lambda: both.call(layer.eval(), x))
    assert [names.count(f"aten::{name}") for name in ("_foreach_copy_", "stack")] == [1, 1]
