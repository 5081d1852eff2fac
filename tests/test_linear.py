"""Linear layers in float32: which ones kernels compute, and their operator."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dispatching import after_each
from torch import Tensor, nn
from torch.nn import functional

from fusegen.runtime import linear, linear_operator


def layer_and_input(rows: int = 4, terms: int = 8, features: int = 6) -> tuple[nn.Linear, Tensor]:
    """A layer and an input of it."""
    torch.manual_seed(0)
    return nn.Linear(terms, features), torch.randn(rows, terms)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls, where every tensor is taken to be on a GPU that has the kernels."""
    calls: list[str] = []

    def call(name: str) -> Callable[..., Tensor]:
        def called(*given: Any) -> Tensor:
            calls.append(name)
            return functional.linear(*given)

        return called

    of = SimpleNamespace(call=call("call"), graded=call("graded"))
    monkeypatch.setattr(linear, "on_gpu", lambda x: True)
    monkeypatch.setattr(linear_operator, "is_worth", lambda columns, weight: True)
    monkeypatch.setattr(linear_operator, "fits", lambda *tensors: True)
    monkeypatch.setattr(linear_operator, "kernels", lambda: of)
    return calls


def test_a_plain_layer_is_computed_by_kernels(called: list[str]) -> None:
    layer, x = layer_and_input()
    assert torch.equal(linear.linear(layer, x), layer(x))
    with torch.no_grad():
        assert torch.equal(linear.linear(layer, x), layer(x))
    assert called == ["graded", "call"]


def test_an_input_of_more_dimensions_is_a_matrix(called: list[str]) -> None:
    layer, x = layer_and_input(12)
    x = x.view(2, 2, 3, 8)
    assert torch.equal(linear.linear(layer, x), layer(x))
    assert called == ["graded"]


def hooked(layer: nn.Linear) -> nn.Linear:
    """A layer whose output somebody sees."""
    layer.register_forward_hook(lambda *_: None)
    return layer


trace: Any = torch.jit.trace


class Other(nn.Linear):
    """A subclass."""


def in_autocast(layer: nn.Linear, x: Tensor) -> Any:
    """A call under CUDA's autocast."""
    with torch.autocast("cuda"):
        return linear.linear(layer, x)


def in_mode(layer: nn.Linear, x: Tensor) -> Any:
    """A call that a mode sees."""
    with after_each(lambda *found: None):
        return linear.linear(layer, x)


GOVERNED: dict[str, Callable[[nn.Linear, Tensor], Any]] = {
    "a hook": lambda layer, x: linear.linear(hooked(layer), x),
    "a subclass": lambda layer, x: linear.linear(Other(8, 6), x),
    "another layer": lambda layer, x: linear.linear(nn.Identity(), x),
    "float64": lambda layer, x: linear.linear(layer.double(), x.double()),
    "one dimension": lambda layer, x: linear.linear(layer, x[0]),
    "a mode": in_mode,
    "a transform": lambda layer, x: torch.func.vmap(lambda row: linear.linear(layer, row[None]))(x),
    "a trace": lambda layer, x: trace(Traced(layer), x, check_trace=False),
    "torch.fx": lambda layer, x: torch.fx.symbolic_trace(Traced(layer)),
}


class Traced(nn.Module):
    """A model of a layer that kernels may compute."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Any:
        """Return what the layer makes of x."""
        return linear.linear(self.layer, x)


@pytest.mark.filterwarnings("ignore:.torch.jit.trace.* is deprecated:DeprecationWarning")
@pytest.mark.parametrize("what", GOVERNED)
def test_what_else_decides_keeps_the_layer(called: list[str], what: str) -> None:
    GOVERNED[what](*layer_and_input())
    assert called == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="autocast of CUDA warns without a GPU")
def test_autocast_keeps_the_layer(called: list[str]) -> None:
    in_autocast(*layer_and_input())
    assert called == []


def of_sizes(rows: int, terms: int, features: int) -> bool:
    """True if the kernels are worth while for a layer of some sizes."""
    return linear_operator.is_worth(rows, torch.empty(features, terms, device="meta"))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1024, 8192, 8192), True),
        ((256, 4096, 4096), True),
        ((64, 8192, 8192), True),
        ((16, 16384, 8192), True),
        ((512, 2048, 2048), True),
        ((256, 2048, 2048), False),
        ((8, 16384, 16384), False),
        ((1024, 1024, 1024), False),
        ((2048, 768, 3072), True),
        ((1024, 512, 4096), True),
        ((16384, 512, 512), False),
        ((65536, 256, 1024), False),
        ((2**25, 1024, 512), False),
    ],
)
def test_small_layers_are_pytorchs(sizes: tuple[int, int, int], expected: bool) -> None:
    assert of_sizes(*sizes) is expected


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (torch.empty(6, 8), True),
        (torch.empty(8, 6).t(), False),  # whose terms begin at no multiple of 16 bytes
        (torch.empty(8, 8).t(), True),
        (torch.empty(6, 10), False),
        (torch.empty(6, 12)[:, 4:], True),
        (torch.empty(6, 12)[:, 1:9], False),
        (torch.empty(6, 16)[:, ::2], False),
        (torch.empty(8).expand(6, 8), False),
        (torch.empty(32).as_strided((4, 8), (4, 1)), False),
    ],
)
def test_weights_begin_at_multiples_of_16_bytes(weight: Tensor, expected: bool) -> None:
    assert linear_operator.is_aligned(weight) is expected


def test_tf32_is_left_to_pytorch_where_it_is_allowed() -> None:
    assert not linear_operator.allows_less()
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert linear_operator.allows_less()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def of_operator(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A layer by the operator."""
    made: Tensor = linear_operator.kernels().layer(x, weight, bias)
    return made


def given(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """An input, a weight and a bias, with gradients."""
    layer, x = layer_and_input()
    tensors = (x, layer.weight.detach(), layer.bias.detach())
    x, weight, bias = (t.to(dtype).requires_grad_() for t in tensors)
    return x, weight, bias


def test_the_operator_is_a_layer_with_all_derivatives() -> None:
    tensors = given(torch.float64)
    assert torch.equal(of_operator(*tensors), functional.linear(*tensors))
    assert torch.autograd.gradcheck(of_operator, tensors)
    assert torch.autograd.gradgradcheck(of_operator, tensors)
    assert torch.autograd.gradcheck(lambda x, weight: of_operator(x, weight, None), tensors[:2])


def test_a_call_without_the_operator_has_the_same_derivatives() -> None:
    tensors = given(torch.float64)
    expected = functional.linear(*tensors)
    grad = torch.randn_like(expected)
    # no kernel takes float64: PyTorch's layer stands in its place
    own = linear_operator._function(lambda *given: functional.linear(*given), of_operator).apply
    for made, eager in zip(
        torch.autograd.grad(own(*tensors), tensors, grad),
        torch.autograd.grad(expected, tensors, grad),
        strict=True,
    ):
        torch.testing.assert_close(made, eager)


def test_the_operator_works_with_fake_tensors_and_batches() -> None:
    tensors = given(torch.float32)
    torch.library.opcheck(linear_operator.kernels().layer, tensors)
    x, weight, bias = (t.detach() for t in tensors)
    several = torch.stack([x, 2 * x])
    made = torch.func.vmap(of_operator, (0, None, None))(several, weight, bias)
    torch.testing.assert_close(made, functional.linear(several, weight, bias))


def test_a_compiled_model_keeps_the_operator(called: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(linear, "on_gpu", lambda x: True)
    monkeypatch.setattr(linear_operator, "is_worth", lambda columns, weight: True)
    found: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        found.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph

    layer, x = layer_and_input()
    compiled = torch.compile(Traced(layer), backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(x), layer(x))
    assert [name for name in found if "linear" in name] == [f"{linear_operator.namespace()}.linear"]


def test_an_exported_program_takes_batches_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator decides when it is called: what is recorded does not ask for the rows of an input."""
    monkeypatch.setattr(linear, "on_gpu", lambda x: True)
    layer, x = layer_and_input(4, 1024, 512)
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(Traced(layer), (x,), dynamic_shapes={"x": {0: batch}})
    assert any(linear_operator.namespace() in str(node.target) for node in program.graph.nodes)
    assert torch.equal(program.module()(x[:2]), layer(x[:2]))


LAYOUTS: dict[str, Callable[[], tuple[nn.Linear, Tensor]]] = {
    "sparse": lambda: (nn.Linear(8, 6), torch.eye(8).to_sparse()),
    "no input": lambda: (nn.Linear(0, 6), torch.empty(4, 0)),
    "no rows": lambda: (nn.Linear(8, 6), torch.empty(0, 8)),
}


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors is a no-op:UserWarning")
@pytest.mark.parametrize("what", LAYOUTS)
def test_other_layouts_and_no_elements_are_pytorchs(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(linear, "on_gpu", lambda x: True)
    layer, x = LAYOUTS[what]()
    torch.testing.assert_close(linear.linear(layer, x), layer(x))
