"""Every valid formula has an eager form: it runs, keeps its input's dtype and is differentiable twice.

Formula k of the grammar is the same in every run; FUSEGEN_EAGER says how many are tried.
"""

import os
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from grammar import CONSTANTS, SPECS, term
from torch import Tensor, nn

from fusegen.algebra.simplify.constants import constants_folded
from fusegen.codegen.printers.pytorch import statements
from fusegen.compiler.stages import Declared, declared, derived, differentiated
from fusegen.core.term import Program
from fusegen.errors import FusegenError, SpecErrors
from fusegen.language.parse import parse_spec

COUNT = int(os.environ.get("FUSEGEN_EAGER", "8"))
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
KNOWN = (  # each had an eager form that raised or changed the dtype
    "where(x > 0, 1, 0)",
    "where(x > 0, 0.1, 2) * where(x < 1, 1, 3)",
    "gelu(alpha) * x",
    "x + where(alpha > beta, alpha, beta)",
    "where(alpha > 0, x, 0)",
    "where(exp(alpha) > beta, x, beta)",
    "x * clamp(alpha, -0.5, beta)",
    "x * clamp(0.5, alpha, 2)",
    "clamp(alpha, x, 2)",
    "softshrink(x, -0.5)",
    "softshrink(x, beta) * 2",
    "hardtanh(x, 2, 1)",
    "hardtanh(x, alpha, beta) + x",
    "rrelu(x, 0.5, 0.25)",
    "x * tanh(alpha)",
    "x * softplus(alpha)",
    "x * relu(alpha) + relu6(beta) * hardtanh(alpha)",
    "x / beta ** 0.5",
    "x * (1 / (alpha - 0.5))",
    "x * beta ** -0.5 + exp(1000 * alpha) * x",
    "maximum(alpha, x) + minimum(x, 0.3)",
    "leaky_relu(x, x * alpha)",
    "elu(alpha, beta) * x + celu(x, alpha) * celu(alpha, alpha)",
    "swiglu(x, alpha) + glu(x, 0.5) + glu(alpha, x)",
    "threshold(x, alpha, beta) * threshold(beta, alpha, 1)",
    "saturate(x, x - 1, x + 1) * saturate(alpha, 0, 1)",
    "hardshrink(x, alpha) + hardshrink(alpha, beta) * logsigmoid(beta) * x",
    "x * minimum(alpha, maximum(beta, 0.1)) * sign(alpha) * abs(beta)",
)  # fmt: skip
Function = Callable[..., Any]


def compiled(formula: str) -> Declared:
    """The programs of a formula of x and two scalars; those that it does not read are left out."""
    params = ", ".join(
        f"{name}: {value}"
        for name, value in {"alpha": 0.5, "beta": -0.25}.items()
        if re.search(rf"\b{name}\b", formula)
    )
    text = f"name: it\nsummary: A test.\nparams: {{{params}}}\nformula: {formula}\n"
    return declared(parse_spec(text, "it.yaml"), SPECS)


def random_case(number: int) -> Declared:
    """The case of a number: the first formula from its seed that is valid."""
    chance = random.Random(f"eager {number}")
    while True:
        formula = term(chance, chance.randint(1, 3), ("x", "x", "x", "alpha", "beta", *CONSTANTS))
        try:
            found = compiled(formula)
            assert constants_folded(found.eager)
            derived(found)
        except (FusegenError, SpecErrors):
            continue
        return found


def function(program: Program, found: Declared) -> Function:
    """A program, as it is printed, as a function of its tensors."""
    lines = "\n    ".join(statements(program))
    scope: dict[str, Any] = {"torch": torch, "nn": nn}
    exec(f"def eager({', '.join((*program.inputs, *program.params))}):\n    {lines}", scope)
    params = [float(param.default) for param in found.spec.params]
    return lambda *tensors: scope["eager"](*tensors, *params)


def eager(found: Declared) -> Function:
    """The eager form as a function of the tensor."""
    return function(constants_folded(found.eager), found)


def pulled(of: Function) -> Function:
    """The gradient of a function of a tensor, for a gradient of ones."""

    def pull(x: Tensor) -> Tensor:
        value, back = torch.func.vjp(of, x)[:2]
        slope: Tensor = back(torch.ones_like(value))[0]
        return slope

    return pull


def gradient(found: Declared) -> Function:
    """The eager form of the gradient: its own where the module has one, or the gradient of the value's."""
    if not derived(found).pytorch_bits:
        return pulled(eager(found))
    program = differentiated(found)
    own, saved = function(program, found), len(program.inputs)
    assert saved == 2
    return lambda x: own(torch.ones_like(x), x)


def check(found: Declared) -> None:
    """Run the eager form and two derivatives in each dtype and shape."""
    forward = eager(found)
    for dtype in DTYPES:
        for shape in ((5,), ()):
            x = torch.linspace(-2, 2.5, 5).to(dtype)[:5] if shape else torch.tensor(0.75, dtype=dtype)
            for of in (forward, gradient(found), pulled(gradient(found))):
                y = of(x)
                assert (y.dtype, y.shape) == (dtype, x.shape)
    if derived(found).pytorch_bits:  # then the kernel has a rule of its own for vmap
        return
    xs = torch.linspace(-2, 2.5, 5)
    torch.testing.assert_close(torch.func.vmap(forward)(xs), forward(xs), equal_nan=True)


@pytest.mark.few(3)
@pytest.mark.together
@pytest.mark.parametrize("formula", KNOWN)
def test_an_eager_form_of_scalars_runs_in_every_dtype(formula: str) -> None:
    check(compiled(formula))


@pytest.mark.few(3)
@pytest.mark.parametrize("number", range(COUNT))
def test_every_valid_formula_has_an_eager_form(number: int) -> None:
    found = random_case(number)
    try:
        check(found)
    except Exception as error:
        raise AssertionError(
            f"{found.spec.formula}\n{statements(constants_folded(found.eager))}"
        ) from error


def test_an_eager_form_of_integers_promotes_as_pytorch_does() -> None:
    x = torch.tensor([-1, 2])
    for formula in ("where(x > 0, 0.5, 0)", "maximum(x, 0.5)", "x * tanh(alpha)"):
        assert eager(compiled(formula))(x).dtype is torch.float32, formula
