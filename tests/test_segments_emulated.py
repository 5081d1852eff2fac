"""Kernels in which piecewise cubics give the functions of one value, in emulation, beside float64."""

import math
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from emulated import Emulated, emulated, fill_table, retold, run
from emulated import defined as defined
from kernels import assert_same, compiled, methods
from torch import Tensor

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

SHAPES = dict.fromkeys("xur", "[2, 4, 8, 8]") | dict.fromkeys(("b", "s", "curves"), "[4, 1, 1]")
COUNT = 20_000


def sigmoid(t: Tensor) -> Tensor:
    """With a derivative that keeps its digits."""
    return torch.exp(-torch.logaddexp(-t, torch.zeros_like(t)))


def tanh(t: Tensor) -> Tensor:
    """With a derivative that keeps its digits."""
    return 2 * sigmoid(2 * t) - 1


def gelu(u: Tensor) -> Tensor:
    return u * torch.erfc(-u / math.sqrt(2)) / 2


def mish(u: Tensor) -> Tensor:
    return u * torch.tanh(torch.logaddexp(u, torch.zeros_like(u)))


# the tensors, the formula, exact results of doubles, eager's of floats
CHAINS: dict[str, tuple[str, str, Any, Any]] = {
    "bias_gelu": ("x b", "gelu(x + b)", lambda x, b: gelu(x + b), lambda x, b: F.gelu(x + b)),
    "scale_sigmoid": (
        "x s b",
        "sigmoid(x * s + b)",
        lambda x, s, b: sigmoid(x * s + b),
        lambda x, s, b: torch.sigmoid(x * s + b),
    ),
    "silu_residual": (
        "x b r",
        "silu(x + b) * 0.5 + r",
        lambda x, b, r: (x + b) * sigmoid(x + b) * 0.5 + r,
        lambda x, b, r: F.silu(x + b) * 0.5 + r,
    ),
    "mish_scale": (
        "x b s",
        "mish(x + b) * s",
        lambda x, b, s: mish(x + b) * s,
        lambda x, b, s: F.mish(x + b) * s,
    ),
    "mish_tanh": (
        "x b",
        "tanh(mish(x + b))",
        lambda x, b: tanh(mish(x + b)),
        lambda x, b: torch.tanh(F.mish(x + b)),
    ),
    "gelu_gate": (
        "x u",
        "sigmoid(gelu(x) * u)",
        lambda x, u: sigmoid(gelu(x) * u),
        lambda x, u: torch.sigmoid(F.gelu(x) * u),
    ),
    "swish": (
        "x b",
        "x * sigmoid(b * x)",
        lambda x, b: x * sigmoid(b * x),
        lambda x, b: x * torch.sigmoid(b * x),
    ),
    "names": (  # that functions of curves have, too
        "x curves",
        "silu(u)\nwhere: {u: gelu(x + curves)}",
        lambda x, b: (u := gelu(x + b)) * sigmoid(u),
        lambda x, b: F.silu(F.gelu(x + b)),
    ),
}
BY_CURVES = {  # methods of float32, forward and backward
    "silu_residual": ["Formula<float>", "Formula<float>"],
}
IN_FLOAT = ["PiecewiseSegments<float>"] * 2
Build = Callable[..., Emulated]
BUILT = [  # each takes 2 s: float by curves, and one pass by the formula
    name if name in ("bias_gelu", "silu_residual") else pytest.param(name, marks=pytest.mark.full)
    for name in CHAINS
]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory, extensions: Path) -> Build:
    """The kernels of one of `CHAINS`, if wanted with pieces of the text replaced."""

    def made(name: str, *pieces: tuple[str, str]) -> Emulated:
        operands, formula, *_ = CHAINS[name]
        inputs = ", ".join(f"{operand}: {{shape: {SHAPES[operand]}}}" for operand in operands.split())
        folder = tmp_path_factory.mktemp(name)
        spec = f"inputs: {{{inputs}}}\ndtypes: [float32]\nformula: {formula}\n"  # which alone has pieces
        module = compiled(folder, name, spec)
        assert [single for _, single, _ in methods(module.CUDA_SOURCE)] == BY_CURVES.get(name, IN_FLOAT)
        found = emulated(retold(module, *pieces), name, folder)
        for kernel in (found.forward, found.backward):
            fill_table(kernel, torch.float32, 0)
        return found

    return cache(made)


def drawn(name: str, scale: float) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(COUNT, generator=generator) * scale for _ in CHAINS[name][0].split()]


def with_gradients(function: Any, inputs: Sequence[Tensor], grad: Tensor) -> list[Tensor]:
    """The result of a function, and the gradients of its inputs."""
    given = [value.clone().requires_grad_() for value in inputs]
    y = function(*given)
    return [y.detach(), *torch.autograd.grad(y, given, grad)]


def ulps(found: Tensor, exact: Tensor) -> float:
    """The largest error, in ulp of the exact result as a float; of subnormal ones in their last place."""
    _, exponent = torch.frexp(exact.abs().clamp_min(2.0**-126))
    return float(
        ((found.double() - exact).abs() / torch.ldexp(torch.ones_like(exact), exponent - 24)).max()
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("scale", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("name", BUILT)
def test_no_result_and_no_gradient_errs_by_more_than_eagers(name: str, scale: float, build: Build) -> None:
    *_, exactly, eagerly = CHAINS[name]
    inputs, of = drawn(name, scale), build(name)
    grad = torch.ones(COUNT)
    found = run(of.forward, *inputs)
    if name not in BY_CURVES:
        found += run(of.backward, grad, *inputs)
    exact = with_gradients(exactly, [value.double() for value in inputs], grad.double())
    eager = with_gradients(eagerly, inputs, grad)
    for ours, theirs, right in zip(found, eager, exact, strict=False):
        assert ulps(ours, right) <= max(4.0, ulps(theirs, right))


@pytest.mark.parametrize("scale", [0.5, 2.0])
@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("bias_gelu", 1.75),
        *(
            pytest.param(name, most, marks=pytest.mark.full)
            for name, most in (("scale_sigmoid", 1.0), ("mish_scale", 2.5), ("swish", 2.5))
        ),
    ],
)
def test_sums_and_products_in_front_of_a_curve_lose_nothing(
    name: str, most: float, scale: float, build: Build
) -> None:
    """Its argument is a double-word value."""
    inputs = [value.clamp(-2, 2) for value in drawn(name, scale)]
    [found] = run(build(name).forward, *inputs)
    assert ulps(found, CHAINS[name][2](*(value.double() for value in inputs))) <= most


EDGES = (0.7517915, 13.0, 64.0, 97.0, 104.0, 1e4)  # a zero of gelu's slope, and where curves end or are 0
SPECIAL = torch.tensor(
    (math.nan, *(sign * x for sign in (1, -1) for x in (0.0, 1.0, 1e-45, 1e-38, 3e38, math.inf, *EDGES)))
)
NO_PIECES = ("    return !uncovered;\n", "    return false;\n")


@pytest.mark.full
@pytest.mark.parametrize("name", ["bias_gelu", "scale_sigmoid", "gelu_gate"])
def test_special_values_are_those_of_the_formula(name: str, build: Build) -> None:
    """NaN, infinities, and zeros with their signs."""
    of, formula, count = build(name), build(name, NO_PIECES), len(CHAINS[name][0].split())
    inputs = [each.flatten() for each in torch.meshgrid(*[SPECIAL] * count, indexing="ij")]
    every = [torch.ones_like(inputs[0]), *inputs]
    found = [*run(of.forward, *inputs), *run(of.backward, *every)]
    expected = [*run(formula.forward, *inputs), *run(formula.backward, *every)]
    for ours, right in zip(found, expected, strict=True):
        special = ~right.isfinite() | (right == 0) | ~ours.isfinite() | (ours == 0)
        assert_same(torch.where(special, ours, 1.0), torch.where(special, right, 1.0), *every[1:])


SECOND_LOOK = ("    if (given<true>(in, out)) return;\n", "")
FORMULA = (
    "    O x[INPUTS], y[OUTPUTS];\n",
    "    for (int k = 0; k < OUTPUTS; ++k) out[k] = NAN;\n    return;\n    O x[INPUTS], y[OUTPUTS];\n",
)


@pytest.mark.full
@pytest.mark.parametrize(("name", "first"), [("bias_gelu", 0.01), ("scale_sigmoid", 0.0)])
def test_nearly_all_results_are_of_pieces(name: str, first: float, build: Build) -> None:
    """Of normal inputs a first look gives nearly all, and a second one those next to zeros."""
    inputs = drawn(name, 2.0)
    grad = torch.ones(COUNT)
    for pieces, most in (((FORMULA, SECOND_LOOK), first), ((FORMULA,), 0.0)):
        of = build(name, *pieces)
        missing = [y.isnan().float().mean() for y in run(of.backward, grad, *inputs)]
        assert float(max(missing)) <= most
        assert float(run(of.forward, *inputs)[0].isnan().float().mean()) <= 0.001


START = "  const float least = fminf(low, high), most = fmaxf(low, high)"
READ = (START, "  if (&piece >= {0} && &piece < {0} + CURVE_PIECES<C>) return false;\n" + START)


@pytest.mark.full
@pytest.mark.parametrize("table", ["curve_pieces<C>", "around_zero<C>"])
def test_no_piece_is_read_by_kernels_before_it_is_tested(table: str, build: Build) -> None:
    """Such a piece fails here, so that the formula, which gives NaN, would compute all of its values."""
    of = build("bias_gelu", FORMULA, (READ[0], READ[1].format(table)))
    inputs = drawn("bias_gelu", 2.0)
    missing = [y.isnan().float().mean() for y in run(of.backward, torch.ones(COUNT), *inputs)]
    assert float(max(missing)) == 0


@pytest.mark.full
def test_what_no_piece_gives_is_computed_by_the_formula(build: Build) -> None:
    x, b = torch.full((64,), -20.0), torch.linspace(-1, 1, 64)
    [ours], [without] = (run(of.forward, x, b) for of in (build("bias_gelu"), build("bias_gelu", FORMULA)))
    assert bool(without.isnan().all())
    assert ulps(ours, gelu(x.double() + b)) < 200
