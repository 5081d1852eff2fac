"""``along(weight, 1)``: parameters of one dimension that run along a dimension of the first input."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from kernels import compiled, generated
from torch import Tensor, nn

from fusegen.codegen.printers.notation import notation
from fusegen.errors import SpecErrors
from fusegen.language.parse import parse_spec

PRELU = nn.functional.prelu
SHAPES = [(5, 3), (2, 3, 7), (2, 3, 4, 5), (1, 3, 2, 2, 2), (0, 3, 4)]
SINGLE = [(), (4,), *SHAPES]


def results(function: Callable[..., Tensor], tensors: list[Tensor]) -> list[Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    y = function(*leaves)
    grad = torch.linspace(-2, 3, y.numel(), dtype=y.dtype).reshape(y.shape)
    return [y, *torch.autograd.grad(y, leaves, grad)]


def assert_alike(found: list[Tensor], exact: list[Tensor]) -> None:
    """Values of equal bits, and gradients, which may be sums in another order, that are close."""
    assert [t.shape for t in found] == [t.shape for t in exact]
    assert [t.dtype for t in found] == [t.dtype for t in exact]
    for ours, theirs in zip(found, exact, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert torch.equal(found[0].nan_to_num(7.0), exact[0].nan_to_num(7.0))


@pytest.mark.full
@pytest.mark.together
@pytest.mark.parametrize(
    ("count", "shape"), [*((3, shape) for shape in SHAPES), *((1, shape) for shape in SINGLE)]
)
@pytest.mark.parametrize("how", ["model", "function", "compiled"])
def test_prelu_is_pytorchs(count: int, shape: tuple[int, ...], how: str) -> None:
    generator = torch.Generator().manual_seed(4)
    x, weight = torch.randn(shape, generator=generator), torch.randn(count, generator=generator)
    if x.numel() > 1:
        x.view(-1)[:2] = torch.tensor([0.0, float("nan")])
    module = generated("prelu")
    model = module.ModelNew(count)

    def as_a_model(x: Tensor, weight: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(model, {"weight": weight}, (x,))
        return found

    ours: Any = module.prelu if how == "function" else as_a_model
    if how == "compiled":
        torch.compiler.reset()  # a shape is compiled alone
        ours = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=False)
    assert_alike(results(ours, [x, weight]), results(PRELU, [x, weight]))


@pytest.mark.parametrize("arguments", [(), (3,), (3, 0.1)])
def test_the_module_is_a_drop_in(arguments: tuple[Any, ...]) -> None:
    ours, theirs = generated("prelu").ModelNew(*arguments), nn.PReLU(*arguments)
    for (name, tensor), (other, expected) in zip(
        ours.state_dict().items(), theirs.state_dict().items(), strict=True
    ):
        assert (name, tensor.dtype) == (other, expected.dtype)
        assert torch.equal(tensor, expected)
    theirs.weight.data.uniform_(-1, 1)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 5)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=0)
    half = ours.half()(x.half())
    assert half.dtype == torch.float16
    torch.testing.assert_close(half, theirs.half()(x.half()))


@pytest.mark.parametrize(
    ("x", "weight", "sentence"),
    [
        ((2, 3, 4), (2,), "prelu: weight has 2 numbers for 3 places along dimension 1"),
        ((2, 1, 4), (3,), "prelu: weight has 3 numbers for 1 places along dimension 1"),
        ((3,), (3,), "prelu: weight has 3 numbers for 1 places along dimension 1"),
        ((2, 3), (1, 3), "prelu: weight must have one dimension, and has 2"),
    ],
)
def test_what_pytorch_refuses_is_one_sentence(
    x: tuple[int, ...], weight: tuple[int, ...], sentence: str
) -> None:
    with pytest.raises(RuntimeError):
        PRELU(torch.randn(x), torch.randn(weight))
    with pytest.raises(RuntimeError, match=f"^{sentence}$"):
        generated("prelu").prelu(torch.randn(x), torch.randn(weight))


def test_a_missing_tensor_is_one_sentence() -> None:
    with pytest.raises(TypeError, match=r"^prelu: the argument weight is missing$"):
        generated("prelu").prelu(torch.randn(2, 3), None)


LEARNED: dict[str, tuple[Callable[..., Tensor], Tensor]] = {
    "swish": (lambda x, beta: x * torch.sigmoid(beta * x), torch.tensor(1.3)),
    "snake_per_channel": (
        lambda x, alpha: x + torch.sin(alpha[:, None] * x).square() / alpha[:, None],
        torch.tensor([0.5, 1.0, 2.0]),
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", LEARNED)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_learned_parameters_get_the_gradients_of_the_formula(name: str, dtype: torch.dtype) -> None:
    formula, parameter = LEARNED[name]
    x = torch.randn(4, 3, 50, generator=torch.Generator().manual_seed(5))
    tensors = [x.to(dtype), parameter.to(dtype)]
    exact = results(formula, [tensor.double() for tensor in tensors])
    bound = 1e-12 if dtype == torch.float64 else 2e-6
    for ours, expected in zip(results(getattr(generated(name), name), tensors), exact, strict=True):
        torch.testing.assert_close(ours.double(), expected, rtol=bound, atol=bound * 10)


def test_parameters_start_as_declared() -> None:
    assert generated("swish").ModelNew().state_dict() == {"beta": torch.tensor(1.0)}
    assert generated("swish").ModelNew(0.5).beta.item() == 0.5
    [(name, alpha)] = generated("snake_per_channel").ModelNew(4).state_dict().items()
    assert name == "alpha"
    assert torch.equal(alpha, torch.ones(4))


BODY = "inputs: {{x: {{shape: [2, 3, 4]}}}}\ninit: {{n: 3}}\nlayers:\n  - w: {}\nformula: {}\n"


def along(formula: str, state: str = "Parameter(ones(n))") -> str:
    """A spec of an input of three dimensions and one parameter."""
    return f"name: gate\nsummary: A test.\n{BODY.format(state, formula)}"


@pytest.mark.full
def test_a_buffer_runs_along_any_dimension(tmp_path: Path) -> None:
    body = BODY.format("Buffer(rand(2))", "tanh(x) * along(w, dim=0) + n")
    module: ModuleType = compiled(tmp_path, "gate", body)
    x, w = torch.randn(2, 3, 4, dtype=torch.float64), torch.rand(2, dtype=torch.float64)
    torch.testing.assert_close(module.gate(x, w), torch.tanh(x) * w[:, None, None] + 3)


def test_it_is_written_for_readers() -> None:
    assert notation(parse_spec(along("along(w, 1) * x"), "specs/gate.yaml")) == "y = along(w, 1) · x"


MISTAKES = {
    "along(x, 1) * w": "along takes the name of a parameter or buffer, and nothing else",
    "along(w) * x": "along takes a parameter or buffer and a dimension",
    "along(w, 0.5) * x": "the dimension of along is a whole number",
    "along(w, 3) * x": "x of shape [2, 3, 4] has no dimension 3",
    "along(w, -1) * x": "x of shape [2, 3, 4] has no dimension -1",
    "along(w, 1) * x + along(w, 0)": "w is already read as along(w, 1)",
    "along(w, 1) * x + w": "w is read as it is here, and elsewhere as along(w, 1)",
    "along(w, 1) * unsqueeze(x, 0)": "w runs along x, which is read by a view",
    "along(w, 0) * x": "the shape (3, 1, 1) of 'w' does not broadcast with the shape (2, 3, 4) of 'x'",
    "unsqueeze(w, 1) * x": "unsqueeze takes the name of an input, and nothing else",
}


@pytest.mark.parametrize("formula", MISTAKES)
def test_a_mistake_is_one_sentence(formula: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        parse_spec(along(formula), "specs/gate.yaml")
    assert MISTAKES[formula] in [error.message for error in caught.value.errors]


def test_only_one_dimension_runs_along_another() -> None:
    with pytest.raises(SpecErrors, match=r"w of shape \[3, 1\] has not one dimension"):
        parse_spec(along("along(w, 1) * x", "Parameter(ones(n, 1))"), "specs/gate.yaml")


def test_a_parameter_may_be_promised_to_lie_in_an_interval() -> None:
    text = along("along(w, 1) * x") + 'assume: {w: "[0.5, 2]"}\n'
    spec = parse_spec(text, "specs/gate.yaml")
    assert [(name, float(of.low), float(of.high)) for name, of in spec.assume] == [("w", 0.5, 2.0)]
