"""Each row of the table of operators: its formula is the operation, on signed numbers."""

import ast
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from conftest import ROOT
from torch import Tensor, fx, nn

from fusegen.models.lift.captured_modes import captured_in_each_mode
from fusegen.models.lift.regions.pointwise import formula_of
from fusegen.models.reader.aten_calls import calls_of
from fusegen.models.reader.aten_table import ROWS, UNSQUEEZE, Form
from fusegen.models.reader.formula import substituted

X = torch.tensor([-31.0, -3.5, -1.0, -0.3, -0.0, 0.0, 0.3, 0.75, 1.0, 3.5, 31.0], dtype=torch.float64)
Y = torch.tensor([2.0, -0.5, 1.0, 0.7, 3.0, -2.0, 1.5, 0.75, -1.0, 0.25, 4.0], dtype=torch.float64)
SAMPLES: dict[str, Any] = {
    "self": X, "other": Y, "tensor1": Y, "tensor2": X + 1, "exponent": 3, "condition": X > 0,
    "mask": X > 0,
    "min": -0.5, "max": 0.75, "alpha": 1.5, "value": 0.5, "negative_slope": 0.2, "min_val": -2.0,
    "max_val": 0.5, "lambd": 0.4, "threshold": 0.6, "beta": 2.0, "dim": 0,
}  # fmt: skip
PRIMITIVES: dict[str, Callable[..., Any]] = {
    **{name: getattr(torch, name) for name in (
        "abs", "sign", "square", "reciprocal", "rsqrt", "exp", "exp2", "expm1", "log", "log2",
        "log1p", "sin", "cos", "tanh", "erf", "erfc", "sigmoid", "relu", "clamp", "where", "unsqueeze",
        "detach",
    )},
    "sqrt": lambda x: x**0.5,
    "neg": torch.neg,
    "clamp_min": torch.clamp_min,
    "clamp_max": torch.clamp_max,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "saturate": torch.clamp,
    "relu6": lambda x: torch.clamp(x, 0, 6),
    "ndtr": lambda x: torch.erfc(-x / 2**0.5) / 2,
}  # fmt: skip


class Names(dict[str, Any]):
    """Names of formulas: functions of the language, then specs of the library by their own formulas."""

    def __missing__(self, name: str) -> Any:
        found = yaml.safe_load((ROOT / f"specs/{name}.yaml").read_text())
        params = found.get("params", {})

        def spec(x: Tensor, **given: float) -> Any:
            own = Names(
                PRIMITIVES, pi=torch.pi, x=x, softplus=lambda u: torch.log1p(torch.exp(-u.abs())) + u.relu()
            )
            return eval(found["formula"], own, {**params, **given})  # of the library

        return spec


def value_of(body: ast.expr, values: dict[str, Any]) -> Any:
    named = {f"value_of_{name}": value for name, value in values.items()}
    own = substituted(body, {name: ast.Name(f"value_of_{name}") for name in values})
    return eval(ast.unparse(own), Names(PRIMITIVES, **named))  # of the table


def operators(name: str) -> list[Any]:
    """The operator of a row, and the one that writes in place."""
    aten: Any = torch.ops.aten
    found = (getattr(aten, each, None) for each in (name, f"{name}_", f"special_{name}"))
    return [each for each in found if each is not None]


def cases() -> list[Any]:
    return [
        pytest.param(operator, form, id=f"{operator.__name__}-{place}")
        for name, row in {**ROWS, **UNSQUEEZE}.items()
        for operator in operators(name)
        for place, form in enumerate(row)
    ]


def assert_equal(found: Any, expected: Tensor) -> None:
    one, other = (each.to(torch.float64) for each in (found, expected))  # of conditions, too
    assert torch.allclose(one, other, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.together
@pytest.mark.parametrize(("operator", "form"), cases())
def test_the_formula_of_a_form_is_the_operation(operator: Any, form: Form) -> None:
    values = {name: SAMPLES[name] for name in form.names if name in SAMPLES}
    given = {**values, **form.given}
    own = {name: each.clone() if isinstance(each, Tensor) else each for name, each in given.items()}
    assert_equal(value_of(form.body, values), operator(**own))


@pytest.mark.parametrize("name", ROWS)
def test_each_row_is_an_operator_of_aten(name: str) -> None:
    assert operators(name)


ACTIVATIONS: dict[str, nn.Module] = {
    **{
        kind.__name__: kind()
        for kind in (
            *(
                nn.ReLU,
                nn.ReLU6,
                nn.SELU,
                nn.SiLU,
                nn.Mish,
                nn.Hardswish,
                nn.Hardsigmoid,
                nn.Sigmoid,
                nn.Tanh,
            ),
            *(
                nn.Softsign,
                nn.Tanhshrink,
                nn.LogSigmoid,
                nn.GELU,
                nn.LeakyReLU,
                nn.ELU,
                nn.CELU,
                nn.Hardtanh,
            ),
            *(nn.Hardshrink, nn.Softshrink, nn.Softplus),
        )
    },
    "in place": nn.Hardswish(inplace=True),
    "Threshold": nn.Threshold(0.25, 0.75),
    "tanh": nn.GELU("tanh"),
    "slope": nn.LeakyReLU(0.3),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "hardswish": lambda: (F.hardswish, (False,), {}),
    "by its place": lambda: (F.leaky_relu, (0.2, False), {}),
    "by its name": lambda: (F.leaky_relu, (), {"negative_slope": 0.2}),
    "softsign": lambda: (F.softsign, (), {}),
    "tanhshrink": lambda: (F.tanhshrink, (), {}),
    "an alias": lambda: (torch.true_divide, (2.0,), {}),
    "special": lambda: (torch.special.expit, (), {}),
    "a bound": lambda: (torch.clip, (), {"max": 0.5}),
    "an operator": lambda: (torch.ops.aten.add.Tensor, (2.0,), {"alpha": 3}),
}


def read(node: fx.Node) -> ast.expr:
    """The formula of a node that reads one value, x."""
    calls = calls_of(node)
    assert calls is not None

    def value(of: Any) -> ast.expr:
        return ast.Name("x") if isinstance(of, fx.Node) else ast.Constant(of)

    return formula_of(node, calls, value)


def place() -> fx.Node:
    """An input of a graph, with an example value."""
    x = fx.Graph().placeholder("x")
    x.meta["val"] = X
    return x


@pytest.mark.together
@pytest.mark.parametrize("case", ACTIVATIONS)
def test_a_layer_is_read_by_what_its_forward_runs(case: str) -> None:
    x, layer = place(), ACTIVATIONS[case]
    owner: Any = nn.ModuleDict({"layer": layer})
    x.graph.owning_module = owner
    assert_equal(value_of(read(x.graph.call_module("layer", (x,))), {"x": X}), layer(X.clone()))


@pytest.mark.together
@pytest.mark.parametrize("case", FUNCTIONS)
def test_a_function_is_read_by_what_it_runs(case: str) -> None:
    x = place()
    function, args, kwargs = FUNCTIONS[case]()
    found = read(x.graph.call_function(function, (x, *args), kwargs))
    assert_equal(value_of(found, {"x": X}), function(X, *args, **kwargs))


WRITTEN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a number in front": (lambda x: 2 * x, "2 * x"),
    "a number behind": (lambda x: x * 2, "x * 2"),
    "a sum": (lambda x: -5 + x, "-5 + x"),
    "a difference": (lambda x: 2 - x, "2 - x"),
    "a number over a value": (lambda x: 2 / x, "2 / x"),
    "a power": (lambda x: 2**x, "2 ** x"),
    "a factor of one": (lambda x: x * 1, "x"),
    "a sum with zero, which changes -0.0": (lambda x: x + 0, "x + 0"),
    "softsign": (F.softsign, "softsign(x)"),
    "tanhshrink": (F.tanhshrink, "tanhshrink(x)"),
}


class Function(nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        """The function's value."""
        return self.function(x)


@pytest.mark.parametrize("case", WRITTEN)
def test_a_formula_is_as_the_model_writes_it(case: str) -> None:
    function, text = WRITTEN[case]
    [graph] = captured_in_each_mode(Function(function), (X,), {}).graphs
    _, call, _ = graph.nodes
    assert ast.unparse(read(call)) == text
