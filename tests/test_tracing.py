"""torch.jit.trace and torch.func.functionalize: what they record computes the same, with its gradient."""

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernels import assert_same, function, generated
from torch import Tensor, nn
from torch.func import grad, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

Call = Callable[..., Any]
CALLS: dict[str, tuple[Call, Call]] = {
    "a function": (lambda x: function("relu")(x), F.relu),
    "with a scalar": (lambda x: function("elu")(x, 0.5), lambda x: F.elu(x, 0.5)),
    "in place": (lambda x: function("elu")(x * 1, inplace=True), F.elu),
    "a gate": (lambda x: function("swiglu")(x, x[:1]), lambda x: F.silu(x) * x[:1]),
    "a split gate": (lambda x: function("swiglu")(x), lambda x: F.silu(x[:, :2]) * x[:, 2:]),
    "a module": (lambda x: generated("hardtanh").ModelNew(inplace=True)(x * 1), F.hardtanh),
}
jit: Any = torch.jit  # which declares no types, as this does not
functionalize: Any = torch.func.functionalize
TRACING = "ignore:.torch.jit.*. is deprecated"


class Network(nn.Module):
    """A layer before a function."""

    def __init__(self, call: Call) -> None:
        """A network that ends in `call`."""
        super().__init__()
        self.layer, self.call = nn.Linear(3, 4), call

    def forward(self, x: Tensor) -> Tensor:
        """The function of the layer's result."""
        result: Tensor = self.call(self.layer(x))
        return result


def gradients(network: Call, x: Tensor, parameters: list[nn.Parameter]) -> tuple[Tensor, ...]:
    """Those of the input and of the parameters."""
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(network(leaf).square().sum(), [leaf, *parameters])


@pytest.mark.few(1)
@pytest.mark.filterwarnings(TRACING)
@pytest.mark.parametrize("which", CALLS)
def test_a_traced_network_passes_its_check_and_keeps_its_gradient(which: str) -> None:
    torch.manual_seed(0)
    network = Network(CALLS[which][0])
    traced = jit.trace(network, torch.randn(2, 3))
    stored = io.BytesIO()
    jit.save(traced, stored)
    stored.seek(0)
    loaded = jit.load(stored)
    parameters = list(network.parameters())
    for rows in (2, 5, 5, 5):  # the second and third call of a trace are compiled again
        x = torch.randn(rows, 3)
        expected = network(x)
        assert_same(traced(x).detach(), expected.detach())
        assert_same(loaded(x).detach(), expected.detach())
        for actual, gradient in zip(
            gradients(traced, x, parameters), gradients(network, x, parameters), strict=True
        ):
            assert_same(actual, gradient)


@pytest.mark.filterwarnings(TRACING)
def test_a_trace_without_a_gradient_has_one_when_it_is_asked_for() -> None:
    with torch.no_grad():
        traced = jit.trace(function("relu"), torch.randn(4))
    x = torch.randn(4)
    [actual], [expected] = gradients(traced, x, []), gradients(F.relu, x, [])
    assert_same(actual, expected)


@pytest.mark.filterwarnings(TRACING)
def test_a_trace_calls_the_operator() -> None:
    traced = jit.trace(function("relu"), torch.randn(4, requires_grad=True))
    kinds = [node.kind() for node in traced.graph.nodes()]
    assert len(kinds) == 1
    assert kinds[0].endswith("::relu")
    assert kinds[0] != "aten::relu"


def ones(x: Tensor) -> Tensor:
    return torch.ones_like(x)


TRANSFORMS: dict[str, Call] = {
    "alone": lambda f, x: functionalize(f)(x),
    "without views": lambda f, x: functionalize(f, remove="mutations_and_views")(x),
    "of a gradient": lambda f, x: functionalize(grad(lambda t: f(t).square().sum()))(x),
    "in a gradient": lambda f, x: grad(lambda t: functionalize(f)(t).square().sum())(x),
    "in a second gradient": lambda f, x: grad(
        lambda t: grad(lambda s: functionalize(f)(s).square().sum())(t).sum()
    )(x),
    "below autograd": lambda f, x: gradients(functionalize(f), x, [])[0],
    "of a tangent": lambda f, x: functionalize(lambda t: jvp(f, (t,), (ones(t),))[1])(x),
    "in a tangent": lambda f, x: jvp(functionalize(f), (x,), (ones(x),))[1],
    "in vmap": lambda f, x: vmap(functionalize(f))(torch.stack([x, 2 * x])),
    "of vmap": lambda f, x: functionalize(vmap(f))(torch.stack([x, 2 * x])),
    "as a graph": lambda f, x: make_fx(lambda t: functionalize(f)(t))(x)(x),
}


@pytest.mark.filterwarnings("ignore:.*There is a performance drop")
@pytest.mark.filterwarnings(TRACING)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("which", CALLS)
def test_functionalize(which: str, transform: str) -> None:
    call, eager = CALLS[which]
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    actual, expected = TRANSFORMS[transform](call, x), TRANSFORMS[transform](eager, x)
    torch.testing.assert_close(actual, expected)


def test_functionalize_calls_the_kernel() -> None:
    graph = make_fx(lambda x: functionalize(function("relu"))(x))(torch.randn(3))
    targets = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert len(targets) == 1
    assert targets[0].endswith(".relu_forward.default")
