"""Kernels on the CPU at infinities and at large numbers of inputs that are tied up."""

import math
from pathlib import Path

import pytest
import torch
from kernels import DTYPES, compiled

pytestmark = pytest.mark.usefixtures("optimised")

INFINITY, NAN = math.inf, math.nan
SPECS = {
    "swish": "inputs: {x: {}, y: {}}\nformula: x * sigmoid(y * x)\n",
    "unit": "inputs: {x: {}, y: {}}\nformula: x / sqrt(x * x + y * y)\n",
    "gated": "inputs: {x: {}, y: {}}\nformula: x * sigmoid(x) * y\n",
}


@pytest.mark.full
def test_an_infinite_factor_of_a_product_that_is_added_gives_infinity(tmp_path: Path) -> None:
    body = "inputs: {x: {}, r: {}, g: {}}\nparams: {a: 1.1}\nformula: r + g * a * gelu(x)\n"
    function = compiled(tmp_path, "scaled_residual", body).scaled_residual
    x, r, g = torch.tensor([[1.3, 1.3, -0.5], [1.0, 1.0, 1.0], [INFINITY, -INFINITY, 3e38]])
    assert function(x, r, g)[:2].tolist() == [INFINITY, -INFINITY]
    assert function(x, r, g * 2, 2.0)[2] == -INFINITY


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("name", "x", "y", "value", "gradient"),
    [
        ("swish", [INFINITY, -INFINITY, INFINITY, -INFINITY, INFINITY], [1.0, 1.0, -1.0, -1.0, NAN],
         [INFINITY, 0.0, 0.0, -INFINITY, NAN], [1.0, 0.0, 0.0, 1.0, NAN]),
        ("unit", [INFINITY, -INFINITY, 1.0, INFINITY, INFINITY], [3.0, 3.0, INFINITY, INFINITY, NAN],
         [1.0, -1.0, 0.0, NAN, NAN], [0.0, 0.0, 0.0, NAN, NAN]),
        ("gated", [INFINITY, -INFINITY, -INFINITY, NAN], [2.0, 2.0, INFINITY, 1.0],
         [INFINITY, 0.0, NAN, NAN], [2.0, 0.0, NAN, NAN]),
    ],
)  # fmt: skip
def test_a_kernel_has_the_limits_of_tied_inputs(
    name: str,
    x: list[float],
    y: list[float],
    value: list[float],
    gradient: list[float],
    dtype: torch.dtype,
    tmp_path: Path,
    extensions: Path,
) -> None:
    function = getattr(compiled(tmp_path, name, SPECS[name]), name)
    tensors = [torch.tensor(values * 9, dtype=dtype, requires_grad=True) for values in (x, y)]
    result = function(*tensors)
    [found] = torch.autograd.grad(result.sum(), tensors[:1])
    torch.testing.assert_close(result, torch.tensor(value * 9, dtype=dtype), equal_nan=True)
    torch.testing.assert_close(found, torch.tensor(gradient * 9, dtype=dtype), equal_nan=True)


@pytest.mark.full
@pytest.mark.parametrize(
    "chain",
    [
        '["exp(-x * x)", tanh_exp]',
        '["-x * x", exp, tanh]',
        '["exp(-x * x)", silu, tanh_exp]',
        '["exp(-x * x - x)", sigmoid]',
    ],
)
def test_a_function_of_an_exponential_whose_product_overflows(
    chain: str, tmp_path: Path, extensions: Path
) -> None:
    """In double the low word of the product is NaN, which the stored exponential ignores."""
    module = compiled(tmp_path, "chained", f"inputs: {{x: {{}}}}\nchain: {chain}\n")
    x = torch.tensor([1e200, INFINITY, 0.5, NAN], dtype=torch.float64, requires_grad=True)
    found, eager = module.chained(x), module.eager(x)
    torch.testing.assert_close(found, eager, equal_nan=True, rtol=1e-14, atol=0)
    [ours] = torch.autograd.grad(found[[0, 2]].sum(), x)
    [theirs] = torch.autograd.grad(eager[[0, 2]].sum(), x)
    torch.testing.assert_close(ours[[0, 2]], theirs[[0, 2]], equal_nan=True, rtol=1e-13, atol=0)
