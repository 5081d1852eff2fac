"""Each row of lift's table: its formula is the operation, on signed numbers."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from conftest import ROOT
from torch import Tensor, nn

from fusegen.models.lift.call_formula import substituted
from fusegen.models.lift.operations import MODULES, ROWS, Form

X = torch.tensor([-31.0, -3.5, -1.0, -0.3, -0.0, 0.0, 0.3, 0.75, 1.0, 3.5, 31.0], dtype=torch.float64)
Y = torch.tensor([2.0, -0.5, 1.0, 0.7, 3.0, -2.0, 1.5, 0.75, -1.0, 0.25, 4.0], dtype=torch.float64)
SAMPLES: dict[str, Any] = {
    "input": X, "other": Y, "tensor1": Y, "tensor2": X + 1, "exponent": 3, "condition": X > 0,
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
POSITIONAL = {
    *(F.threshold, torch.masked_fill, Tensor.masked_fill, Tensor.masked_fill_),
    *(torch.clamp_max, torch.clamp_max_, Tensor.clamp_max, Tensor.clamp_max_),
}
KEYWORDS = ("alpha", "max", "value")  # that some functions take by name only


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


def value_of(form: Form, values: dict[str, Any]) -> Any:
    named = {f"value_of_{name}": value for name, value in values.items()}
    body = substituted({name: ast.Name(f"value_of_{name}", ast.Load()) for name in values}, form.body)
    code = compile(ast.fix_missing_locations(ast.Expression(body)), "formula", "eval")
    return eval(code, Names(PRIMITIVES, **named))  # of the table


def cases() -> list[Any]:
    return [
        pytest.param(target, form, id=f"{getattr(target, '__qualname__', target)}-{place}-{number}")
        for number, (target, row) in enumerate(ROWS.items())
        for place, form in enumerate(row.forms)
    ]


@pytest.mark.together
@pytest.mark.parametrize(("target", "form"), cases())
def test_the_formula_of_a_form_is_the_operation(target: Callable[..., Any], form: Form) -> None:
    values = {name: SAMPLES[name] for name in form.names if name in form.reads}
    by_name = {k: v for k, v in values.items() if k in KEYWORDS and (k != "max" or "min" not in values)}
    by_place = [value for name, value in values.items() if name not in by_name]
    keywords = {k: v for k, v in form.defaults.items() if k not in form.reads and v is not None}
    keywords = {**keywords, **by_name} if target not in POSITIONAL else {}
    if target in POSITIONAL:
        by_place = list(values.values())
    if target is torch.where:
        expected = torch.where(SAMPLES["condition"], X, Y)
    elif target is Tensor.where:
        pytest.skip("the condition of the method is its second argument")
    else:
        expected = target(*(v.clone() if isinstance(v, Tensor) else v for v in by_place), **keywords)
    found = value_of(form, values)
    same = expected.to(torch.float64)  # of conditions, too
    assert torch.allclose(found.to(torch.float64), same, rtol=1e-12, atol=1e-12, equal_nan=True)


def made(kind: type[nn.Module]) -> nn.Module:
    return kind(0.25, 0.75) if kind is nn.Threshold else kind()


@pytest.mark.together
@pytest.mark.parametrize("kind", MODULES, ids=lambda kind: kind.__name__)
def test_a_module_is_its_function_with_its_attributes(kind: type[nn.Module]) -> None:
    target, attributes = MODULES[kind]
    keywords = {name: getattr(made(kind), name) for name in attributes}
    assert torch.equal(made(kind)(X.clone()), target(X.clone(), **keywords))
    forms = ROWS[target].forms
    assert set(attributes) - {"inplace"} <= set(forms[0].names)


def test_the_functions_of_the_library_have_a_row() -> None:
    names = ("relu", "relu6", "elu", "celu", "selu", "silu", "mish", "gelu", "hardswish", "hardsigmoid",
             "hardtanh", "leaky_relu", "logsigmoid", "softplus", "softsign", "tanhshrink", "softshrink",
             "hardshrink", "threshold")  # fmt: skip
    assert [name for name in names if getattr(F, name) not in ROWS] == []
