"""Errors of values and gradients near their zeros, where the words of what cancels decide them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from elements import Elements, Formula
from kernels import compiled
from torch import Tensor

VALUE, GRADIENT = 0, 1
# a formula, its result, an interval with one zero of it, and the distance from it where results are within
# 4 ulp; of two inputs the second one is 1.25
ZEROS: dict[str, tuple[str, int, tuple[float, float], float]] = {
    "gelu": ("gelu(x)", GRADIENT, (-0.8, -0.7), 2.0**-20),
    "gelu_tanh": ("gelu_tanh(x)", GRADIENT, (-0.8, -0.7), 2.0**-6),
    "tanh_exp": ("x * tanh(exp(x))", GRADIENT, (-1.2, -0.9), 2.0**-5),
    "chain": ("sigmoid(silu(mish(gelu(tanh(x)))))", GRADIENT, (-1.1, -0.9), 2.0**-7),
    "swiglu": ("silu(x) * y", GRADIENT, (-1.4, -1.2), 2.0**-6),
    "swish": ("x * sigmoid(y * x)", GRADIENT, (-1.2, -0.9), 2.0**-6),
    "a number": ("tanh(x - 0.5) - 0.2", VALUE, (0.6, 0.8), 2.0**-8),
}


def inputs(found: Elements, x: Tensor) -> list[Tensor]:
    return [x, *(torch.full_like(x, 1.25) for _ in found.formula.inputs[1:])]


def zero(found: Elements, result: int, low: float, high: float) -> float:
    """The zero of a float64 result that changes its sign once between two numbers."""
    for _ in range(50):
        middle = (low + high) / 2
        y = found("cpu", *inputs(found, torch.tensor([low, middle], dtype=torch.float64)))[result]
        low, high = (low, middle) if y[0] * y[1] <= 0 else (middle, high)
    return low


def around(zero: float, nearest: float) -> Tensor:
    """Floats on either side of a zero, from `nearest` to half of it away, as parts of it."""
    away = torch.logspace(-1, 0, 4096, base=0.5 / nearest, dtype=torch.float64) / 2
    return torch.cat([zero * (1 + away), zero * (1 - away)]).float()


def largest_error(given: Tensor, exact: Tensor) -> float:
    """The largest error of float32 results, in ulp of the exact ones."""
    ulp = torch.exp2(torch.frexp(exact)[1].double() - 24)
    return float(((given.double() - exact).abs() / ulp).max())


# by cubics on CUDA, swish's gradient; by double words on the CPU, gelu's
DEVICES = {"gelu": ("cuda",), "swiglu": ("cpu", "cuda"), "swish": ("cpu",)}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ZEROS)
def test_a_result_near_its_zero_is_within_4_ulp(name: str, tmp_path: Path) -> None:
    formula, result, ends, nearest = ZEROS[name]
    names = ("x", "y") if "y" in formula else ("x",)
    found = Elements(Formula(formula, inputs=names), "near_zero", tmp_path)
    x = around(zero(found, result, *ends), nearest)
    exact = found("cpu", *inputs(found, x.double()))[result]
    for device in DEVICES.get(name, ("cpu",)):
        assert largest_error(found(device, *inputs(found, x))[result], exact) <= 4


@pytest.mark.full
@pytest.mark.parametrize("result", [VALUE, GRADIENT])
def test_a_tail_keeps_both_words_of_a_quotient(result: int, tmp_path: Path) -> None:
    found = Elements(Formula("gelu(x / y)", inputs=("x", "y")), "tail", tmp_path)
    x = torch.linspace(-125, -60, 4096)
    exact = found("cpu", x.double(), torch.full_like(x.double(), 10))[result]
    for device in ("cpu", "cuda"):
        assert largest_error(found(device, x, torch.full_like(x, 10))[result], exact) <= 4


@pytest.mark.full
def test_the_sixth_of_hardswish_rounds_with_its_sum(tmp_path: Path) -> None:
    found = Elements(Formula("hardswish(silu(x))"), "sixth", tmp_path)
    x = torch.linspace(-3.2, -3.1, 2**15)
    assert largest_error(found("cuda", x)[VALUE], found("cpu", x.double())[VALUE]) <= 2.5


@pytest.mark.full
@pytest.mark.parametrize("formula", ["mish(hardswish(x))", "tanh(hardswish(clamp(x, -3, 3)))"])
def test_the_sixth_of_hardswish_is_no_part_of_a_sum_that_cancels(formula: str, tmp_path: Path) -> None:
    found = Elements(Formula(formula), "cancels", tmp_path)
    x = torch.tensor([-3.0])
    for device in ("cpu", "cuda"):
        for given in (x, x.double()):
            value, slope = found(device, given)
            assert (float(value), float(slope)) == (0.0, 0.0)


@pytest.mark.full
def test_a_product_with_a_sigmoid_keeps_the_sign_of_a_zero(tmp_path: Path) -> None:
    found = Elements(Formula("silu(x) * y", inputs=("x", "y")), "of_zero", tmp_path)
    x, y = torch.tensor([-0.0, 0.0, torch.inf]), torch.ones(3)
    for device in ("cpu", "cuda"):
        value, _, slope_of_y = found(device, x, y)
        for result in (value, slope_of_y):
            assert torch.equal(result, x)
            assert torch.equal(result.signbit(), x.signbit())


def slopes(function: Callable[[Tensor], Tensor], given: Tensor) -> Tensor:
    x = given.clone().requires_grad_()
    return torch.autograd.grad(function(x).sum(), x)[0]


@pytest.mark.full
@pytest.mark.parametrize("k", [-3.0, -1.0, -0.5])
def test_a_gradient_with_a_zero_at_other_scalars_keeps_its_digits(
    k: float, tmp_path: Path, extensions: Path
) -> None:
    """That of exp(-k x) / x is 0 at -1 / k, and at the default, 1, nowhere."""
    body = 'params: {k: 1.0}\nassume: {x: "[0.001, 80]"}\nformula: exp(-k * x) / x\n'
    module = compiled(tmp_path, "screened", body)
    x = torch.linspace(0.98, 1.02, 4001)[:1990] / -k
    exact = slopes(lambda t: module.eager(t, k), x.double())
    mine = slopes(lambda t: module.screened(t, k), x).double()
    eager = slopes(lambda t: module.eager(t, k), x).double()
    errors = [float(((found - exact) / exact).abs().max()) for found in (mine, eager)]
    assert errors[0] < errors[1] / 2
