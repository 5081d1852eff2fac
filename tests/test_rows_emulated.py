"""CUDA's kernels of rows run on the CPU: values and gradients of each shape of team, special rows."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from budget import FULL
from rows_emulated import Rows, emulated
from test_rows import made
from torch import Tensor
from torch.nn import functional

EPS = 1e-5
TOLERANCES = {torch.float32: 3e-7, torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float64: 1e-13}
# lanes of a warp, a block of warps, odd lengths
SIZES = ((3, 8), (4, 33), (2, 600), pytest.param((2, 1003), marks=pytest.mark.full))
DTYPES = [*TOLERANCES]
# float16 is read and written as bfloat16 is, by conversions of its own, which softmax has
FEWER = [pytest.param(each, marks=pytest.mark.full) if each is torch.float16 else each for each in DTYPES]
SPLIT = DTYPES if FULL else [torch.bfloat16, torch.float64]  # results in float, and in double


def library(name: str) -> Rows:
    return emulated(importlib.import_module(f"generated.rows.{name}"))


def assert_near(own: Tensor, exact: Tensor, times: float = 1) -> None:
    """Results are as near as their dtype has them; infinities and NaN are the same."""
    tolerance = times * TOLERANCES[own.dtype]
    torch.testing.assert_close(own.double(), exact, rtol=tolerance, atol=1e-3 * tolerance, equal_nan=True)


def drawn(size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(sum(size))).to(dtype)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_softmax(size: tuple[int, int], dtype: torch.dtype) -> None:
    kernels, x, grad = library("softmax"), drawn(size, dtype), drawn((1, *size), dtype)[0]
    wide = x.double().requires_grad_()
    exact = torch.softmax(wide, -1)
    assert_near(kernels.forward([x]), exact.detach())
    [own] = kernels.backward([grad, x])
    assert_near(own, torch.autograd.grad(exact, wide, grad.double())[0], 4)


# what moves a thread's unit, or leaves powers of two as units, and what has no sum
SPECIAL: dict[str, Callable[[int], Tensor]] = {
    "rising": lambda n: torch.linspace(-300, 300, n),
    "falling": lambda n: torch.linspace(300, -300, n),
    "one far above": lambda n: torch.zeros(n).index_fill(0, torch.tensor([n // 2]), 25.0),
    "equal": lambda n: torch.full((n,), 3.25),
    "far": lambda n: torch.linspace(6e4, 6.2e4, n),
    "farther": lambda n: torch.linspace(-6e37, 6.2e37, n),
    "least": lambda n: torch.full((n,), -6e4),
    "from far to near": lambda n: torch.linspace(-6e5, 40, n),
    "masked": lambda n: torch.where(torch.arange(n) % 3 > 0, -torch.inf, 1.5),
    "all masked": lambda n: torch.full((n,), -torch.inf),
    "infinity": lambda n: torch.ones(n).index_fill(0, torch.tensor([n - 1]), torch.inf),
    "NaN": lambda n: torch.ones(n).index_fill(0, torch.tensor([0]), torch.nan),
    "NaN and infinity": lambda n: torch.tensor([torch.nan, torch.inf]).repeat(n)[:n],
}


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", FEWER[:-1])  # in two loops of float64
@pytest.mark.parametrize("n", [8, 37, 1104, pytest.param(4104, marks=pytest.mark.full)])
def test_rows_that_are_read_once(n: int, dtype: torch.dtype) -> None:
    x = torch.stack([*(made(n) for made in SPECIAL.values()), drawn((n,), torch.float32)]).to(dtype)
    target = x.nan_to_num(-torch.inf).argmax(-1)  # so that a loss is a logarithm of a sum near 1
    target[-1] = n // 3
    for picked in (target, n - 1 - target):
        own = library("cross_entropy").forward([x, picked[:, None]])[:, 0]
        assert_near(own, functional.cross_entropy(x.double(), picked, reduction="none"), 4)
    assert_near(library("logsumexp").forward([x])[:, 0], torch.logsumexp(x.double(), -1), 4)


FORMULAS = {  # and whether one loop finds the largest element and the sum
    "logsumexp(x) * logsumexp(x + logsumexp(x))": True,  # whose gradient has products of values of a row
    "sum(exp(x - log(amax(x))))": False,  # NaN of 0 and -infinity
    "sum(exp(x - amax(y)))": False,
    "sum(exp(x - max(x)))": False,
}


@pytest.mark.parametrize(
    "formula",
    [pytest.param(each, marks=pytest.mark.full if one_loop else ()) for each, one_loop in FORMULAS.items()],
)
def test_formulas_of_users_that_are_read_once(formula: str, tmp_path: Path) -> None:
    inputs = "x: {shape: [3, 5]}" + ", y: {shape: [3, 5]}" * ("y" in formula)
    module: Any = made(tmp_path, "any_rows", f"inputs: {{{inputs}}}\nover: [-1]\nformula: {formula}\n")
    assert ("LargestAndSum<" in module.KERNELS.texts().cuda) is FORMULAS[formula]
    for dtype in SPLIT if FORMULAS[formula] else ():
        rows = emulated(module)
        x = torch.stack([make(37) for make in SPECIAL.values()]).to(dtype)
        exact = module.KERNELS.where_they_are(x.double())
        assert_near(rows.forward([x])[:, 0], exact.to(dtype).double(), 2)
        x, grad = drawn((3, 37), dtype), drawn((3, 1), dtype)
        wide = x.double().requires_grad_()
        exact = module.KERNELS.where_they_are(wide)
        assert_near(
            rows.backward([grad, x])[0], torch.autograd.grad(exact, wide, grad[:, 0].double())[0], 4
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("n", [40, pytest.param(16392, marks=pytest.mark.full)])  # in registers, and held
def test_each_place_of_a_vector_may_be_picked(n: int, dtype: torch.dtype) -> None:
    """The vector with it is stored apart, beside the first and the last ones without."""
    picked = torch.tensor([*range(9), n // 2, *range(n - 9, n), -100])
    x, grad = 3 * drawn((len(picked), n), dtype), drawn((len(picked), 1), dtype)
    wide = x.double().requires_grad_()
    exact = functional.cross_entropy(wide, picked, reduction="none")
    [own] = library("cross_entropy").backward([grad, x, picked[:, None]])
    assert_near(own, torch.autograd.grad(exact, wide, grad[:, 0].double())[0], 4)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_layer_norm_with_sums_over_the_rows(size: tuple[int, int], dtype: torch.dtype) -> None:
    kernels, columns = library("layer_norm"), size[-1]
    x, weight, bias = drawn(size, dtype), drawn((columns,), dtype), drawn((1, columns), dtype)[0]
    grad = drawn((1, *size), dtype)[0]
    wide = [each.double().requires_grad_() for each in (x, weight, bias)]
    exact = functional.layer_norm(wide[0], (columns,), wide[1], wide[2], EPS)
    assert_near(kernels.forward([x, weight, bias], (EPS,)), exact.detach(), 4)
    made = kernels.summed([grad, x, weight[None], bias[None]], (EPS,))
    for own, other in zip(made, torch.autograd.grad(exact, wide, grad.double()), strict=True):
        assert_near(own.reshape(other.shape), other, 16)


@pytest.mark.full
@pytest.mark.parametrize("dtype", FEWER)
def test_cross_entropy_of_an_index(dtype: torch.dtype) -> None:
    kernels, x = library("cross_entropy"), 3 * drawn((5, 37), dtype)
    target = torch.tensor([-100, 0, 36, 5, 9])
    x[3, 5] = 9 if dtype is torch.float64 else 24  # whose gradient float would lose among its terms
    picks = target[:, None]
    wide = x.double().requires_grad_()
    exact = functional.cross_entropy(wide, target, reduction="none")
    assert_near(kernels.forward([x, picks])[:, 0], exact.detach(), 2)
    grad = drawn((5, 1), dtype)
    [own] = kernels.backward([grad, x, picks])
    assert_near(own, torch.autograd.grad(exact, wide, grad[:, 0].double())[0], 4)


@pytest.mark.full
@pytest.mark.parametrize("dtype", FEWER)
@pytest.mark.parametrize("rows", [0, 1, 700, 17000])  # of one block, and of several
def test_the_reduction_of_the_values_of_rows(rows: int, dtype: torch.dtype) -> None:
    kernels, x, weight = library("cross_entropy"), drawn((rows, 3), dtype), drawn((rows, 3), dtype)
    values, target = drawn((rows, 1), dtype), torch.arange(rows)[:, None] % 3
    target[::5] = -100
    total, kept = values.double().sum(), target != -100
    of_weights = weight.double().gather(1, target.clamp(min=0))[kept].sum()
    for known, weights, divisor in ((4.0, 0, 4.0), (-1.0, 0, kept.sum()), (-1.0, 1, of_weights)):
        given = [x, weight, target] if weights else [x, target]
        source = emulated(importlib.import_module("generated.losses.weighted_nll")) if weights else kernels
        found, count = source.total(given, values, known, weights)
        torch.testing.assert_close(count, torch.as_tensor(divisor).double(), rtol=1e-13, atol=0)
        wanted = (total / count).to(dtype)
        torch.testing.assert_close(found, wanted, rtol=TOLERANCES[dtype], atol=0, equal_nan=True)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(2, 16, 50), (1, 100, 33)])
def test_rows_that_lie_apart_have_their_bits(size: tuple[int, int, int], dtype: torch.dtype) -> None:
    kernels, x = library("softmax_of_channels"), drawn(size, dtype).movedim(1, -1)
    own = kernels.forward([x])
    assert_near(own, torch.softmax(x.double(), -1))
    assert torch.equal(own, kernels.forward([x.contiguous()]))
    grads = [kernels.backward([laid, laid])[0] for laid in (x, x.contiguous())]
    assert torch.equal(*grads)


@pytest.mark.full
@pytest.mark.parametrize("dtype", FEWER)
def test_rows_that_begin_within_a_vector_have_their_bits(dtype: torch.dtype) -> None:
    kernels, x = library("softmax_of_channels"), drawn((2, 50, 16), dtype)
    moved = torch.empty(1 + x.numel(), dtype=dtype)[1:].view_as(x).copy_(x)
    assert torch.equal(kernels.forward([x]), kernels.forward([moved]))
    assert torch.equal(kernels.backward([x, x])[0], kernels.backward([moved, x])[0])


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", DTYPES)
def test_special_rows(dtype: torch.dtype) -> None:
    kernels, x = library("softmax"), drawn((9, 70), dtype)
    x[0, 3], x[1, 5], x[2], x[3, 7:], x[4] = torch.inf, torch.nan, -torch.inf, -torch.inf, 0
    x[5], x[6], x[7, 0], x[8] = x[5] * 1e4, 65504.0, -torch.inf, x[8] * -3e4
    assert_near(kernels.forward([x]), torch.softmax(x.double(), -1))


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_whose_squares_leave_floats_range(dtype: torch.dtype) -> None:
    kernels = library("rms_norm")
    x, weight = drawn((5, 90), dtype), drawn((90,), dtype)
    x[0], x[1], x[2] = x[0] * 1e4, x[1] * 1e-6, 0
    if dtype is not torch.float16:
        x[4] *= 1e30
    exact = functional.rms_norm(x.double(), (90,), weight.double(), EPS)
    assert_near(kernels.forward([x, weight], (EPS,)), exact, 2)


# channels of few pixels and of one, in whole vectors and not; of lanes, of a block, and in runs of warps
GROUPS = ((2, 3, 4, 5), (3, 2, 8, 1), (1, 2, 2, 40), (2, 1, 3, 96), (1, 1, 2, 4201), (2, 2, 5, 520))


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", GROUPS)
@pytest.mark.parametrize("name", ["group_norm", "group_norm_silu"])
def test_groups_with_sums_by_channel(
    name: str, size: tuple[int, int, int, int], dtype: torch.dtype
) -> None:
    images, groups, channels, pixels = size
    kernels, rows = library(name), (images, groups, channels * pixels)
    x, grad, of_channels = drawn(rows, dtype), drawn((1, *rows), dtype)[0], (groups, channels)
    weight, bias = drawn(of_channels, dtype), drawn((1, *of_channels), dtype)[0]
    wide = [each.double().requires_grad_() for each in (x, weight, bias)]
    whole = [t.flatten() for t in wide[1:]]
    exact: Tensor = functional.group_norm(
        wide[0].reshape(images, -1, pixels), groups, whole[0], whole[1], EPS
    )
    exact = (functional.silu(exact) if name == "group_norm_silu" else exact).reshape(rows)
    assert_near(kernels.forward([x, weight, bias], (EPS,)), exact.detach(), 4)
    made = kernels.summed([grad, x, weight, bias], (EPS,))
    for own, other in zip(made, torch.autograd.grad(exact, wide, grad.double()), strict=True):
        assert_near(own, other, 32)
