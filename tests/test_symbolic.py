"""torch.fx.symbolic_trace: a traced network calls the operators, and computes what the network computes."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from kernels import assert_same, compiled, function, generated
from torch import Tensor, fx, nn

Layers = Callable[[], nn.Module]


class Calls(nn.Module):
    """A network that is one call."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The result of the call; torch.fx writes its annotations into the graph's code."""
        result: Tensor = self.call(x, y)
        return result


def module(name: str, *arguments: Any, **words: Any) -> Layers:
    """A layer of a generated module before and behind others."""
    return lambda: nn.Sequential(nn.Linear(4, 4), generated(name).ModelNew(*arguments, **words))


def call(form: Callable[..., Any]) -> Layers:
    """A network that calls functions."""
    return lambda: Calls(form)


def written(x: Tensor, y: Tensor) -> Any:
    return function("silu")(x, out=torch.empty_like(x))


NETWORKS: dict[str, tuple[str, Layers]] = {
    "a module": ("gelu", module("gelu")),
    "with a scalar": ("elu", module("elu", 0.5)),
    "in place": ("elu", module("elu", inplace=True)),
    "a parameter": ("prelu", module("prelu", 3)),
    "halves": ("swiglu", module("swiglu")),
    "a function": ("silu", call(lambda x, y: function("silu")(x))),
    "by its word": ("silu", call(lambda x, y: function("silu")(input=x))),
    "of two": ("swiglu", call(lambda x, y: function("swiglu")(x, y))),
    "into a tensor": ("silu", call(written)),
    "a convolution": (
        "conv_relu_hardswish",
        lambda: nn.Sequential(generated("conv_relu_hardswish").ModelNew(3, 2, 1)),
    ),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_traced_network_keeps_the_operator_and_its_gradient(name: str, extensions: Path) -> None:
    own, made = NETWORKS[name]
    torch.manual_seed(0)
    network = made()
    traced: Any = fx.symbolic_trace(network)
    operators = [
        node.target for node in traced.graph.nodes if isinstance(node.target, torch._ops.OpOverload)
    ]
    assert operators == [generated(own).KERNELS.overload]
    given = [torch.randn(2, 3, 4, 4) for _ in range(2 if isinstance(network, Calls) else 1)]
    for graph in (traced, copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        results = [run(*given) for run in (graph, network)]
        assert_same(*(y.detach() for y in results))
    parameters = list(network.parameters())
    if parameters:
        slopes = [torch.autograd.grad(run(*given).square().sum(), parameters) for run in (traced, network)]
        for actual, expected in zip(*slopes, strict=True):
            assert_same(actual, expected)


def test_a_traced_network_takes_what_the_function_takes(extensions: Path) -> None:
    traced = fx.symbolic_trace(generated("relu").ModelNew())
    assert traced(torch.arange(-2, 3)).tolist() == [0, 0, 0, 1, 2]
    gate = fx.symbolic_trace(Calls(function("swiglu")))
    x, up = torch.randn(3), torch.randn(3, dtype=torch.bfloat16)
    assert_same(gate(x, up), function("swiglu")(x, up))
    sparse = torch.eye(3).to_sparse()
    assert traced(sparse).layout == torch.sparse_coo


def test_a_number_and_a_mask_are_traced(tmp_path: Path) -> None:
    body = "inputs: {x: {shape: [5]}, m: {shape: [5], dtype: bool}, s: 2}\nformula: where(m, x, s * x)\n"
    traced = fx.symbolic_trace(compiled(tmp_path, "chosen", body).ModelNew())
    x, m = torch.randn(5), torch.tensor([True, False, True, False, False])
    assert_same(traced(x, m, 3.0), torch.where(m, x, 3 * x))
