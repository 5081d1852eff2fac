"""Sums of a row and of differences to its mean in one loop: which phases are one, and what it finds."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from rows_emulated import Rows, emulated
from test_long_rows import LEAST, SPECS, drawn
from test_rows import made
from torch import Tensor
from torch.nn import functional

HEAD = "inputs: {x: {shape: [4, 64]}%s}\nover: [-1]\n"
OTHER = ", y: {shape: [4, 64]}"
NORM = "where: {c: %s - mean(%s)}\nformula: %s\n"
FORMULAS = {
    "a variance": ("x", "mean(c ** 2)", "0, 0"),
    "a norm": ("x", "c * rsqrt(mean(c ** 2) + 1e-5)", "0, 0"),
    "of what a function gives": ("silu(x)", "c * rsqrt(mean(c ** 2) + 1e-5)", "0, 0"),
    "a covariance": ("x", "mean(c * y) - mean(y)", "0, 1"),
    "no sum of the other factor": ("x", "mean(c * y)", None),
    "a factor of its own": ("x", "mean(c * x)", None),
    "a mean deviation": ("x", "mean(abs(c))", None),
    "a fourth power": ("x", "mean(c ** 4)", None),
    "one loop as it is": ("x", "c", None),
}
LOOP = re.compile(
    r"struct Forward : Rows<[^{]*?CentredSums<Forward1, Forward2, &ForwardValues::(\w+), ([\d, ]+)>"
)


@pytest.mark.parametrize(("x", "formula", "factors"), FORMULAS.values(), ids=FORMULAS)
def test_phases_that_are_one_loop(x: str, formula: str, factors: str | None, tmp_path: Path) -> None:
    spec = HEAD % (OTHER * ("y" in formula)) + NORM % (x, x, formula)
    module: Any = made(tmp_path, "centred", spec)
    found = LOOP.search(module.CUDA_SOURCE)
    assert (found and found[2]) == factors
    assert "CentredSums" not in module.CPU_SOURCE


def test_values_of_rows_that_are_results_keep_their_loops() -> None:
    """Phases that store and load them know the values as they are."""
    module: Any = importlib.import_module("generated.rows.layer_norm_statistics")
    assert "CentredSums" not in module.CUDA_SOURCE


@pytest.fixture(scope="module")
def norm(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Layer norm, whose rows of 512 elements and more are long ones."""
    module: Any = made(tmp_path_factory.mktemp("norm"), "long_layer_norm", SPECS["long_layer_norm"])
    return emulated(module, (LEAST, "LEAST_LONG = 512, LEAST_PART = 64"))


@cache
def arguments(n: int) -> tuple[Tensor, Tensor, Tensor]:
    return (
        drawn((2, n), torch.float32),
        drawn((2, n + 1), torch.float32)[:, 1:].contiguous(),
        drawn((n,), torch.float32),
    )


ROWS = {
    "drawn": lambda x: x,
    "the first element far from the others": lambda x: x.index_fill(1, torch.tensor([0]), 1e7),
    "the last one": lambda x: x.index_fill(1, torch.tensor([x.shape[1] - 1]), -1e7),
    "a mean far from 0": lambda x: x + 1e6,
    "large": lambda x: x * 1e30,
    "small": lambda x: x * 1e-12,
    "constant": lambda x: torch.full_like(x, 0.1),
    "two values": lambda x: (x > 0).float() * 1e-3 + 4,
}


@pytest.mark.few(3)
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_values_and_gradients_of_rows(norm: Rows, row: Any) -> None:
    """The shift is the first element, which may be far from the mean."""
    drawn_x, grad, weight = arguments(1000)
    x, bias = row(drawn_x), weight.flip(0)
    wide = [each.double().requires_grad_() for each in (x, weight, bias)]
    exact = functional.layer_norm(wide[0], (1000,), wide[1], wide[2], 1e-5)
    torch.testing.assert_close(
        norm.forward([x, weight, bias]).double(), exact.detach(), rtol=3e-7, atol=1e-7
    )
    found = norm.summed([grad, x, weight[None], bias[None]], ())
    for own, other in zip(found, torch.autograd.grad(exact, wide, grad.double()), strict=True):
        scale = max(float(other.abs().max()), 1e-3)
        torch.testing.assert_close(own.reshape(other.shape).double(), other, rtol=3e-6, atol=3e-7 * scale)


@pytest.mark.parametrize("rows", [0, 3])
def test_rows_without_elements_have_no_first_one_to_read(norm: Rows, rows: int) -> None:
    """Such a tensor has no memory, so that a load from it ends the process."""
    x, weight = torch.empty(rows, 0), torch.empty(0)
    assert norm.forward([x, weight, weight]).shape == x.shape
    assert [t.numel() for t in norm.summed([x, x, weight[None], weight[None]], ())] == [0, 0, 0]


SPECIAL = [
    (place, at, value)
    for place in ("x", "gradient")
    for at in (0, 700)
    for value in (torch.inf, -torch.inf, torch.nan, 3e38)
]


@pytest.mark.few(2)
@pytest.mark.parametrize(("place", "at", "value"), SPECIAL)
def test_special_elements_give_what_two_loops_give(norm: Rows, place: str, at: int, value: float) -> None:
    """Those of float64 are two: where a sum is infinite or NaN, those of float32 are, too."""
    x, grad, weight = (each.clone() for each in arguments(1000))
    (x if place == "x" else grad)[0, at] = value
    own, wide = (
        [norm.forward(of), *norm.summed([grad.to(of[0].dtype), of[0], of[1][None], of[2][None]], ())]
        for of in ([x, weight, weight], [each.double() for each in (x, weight, weight)])
    )
    for narrow, exact in zip(own, wide, strict=True):
        torch.testing.assert_close(
            narrow, exact.float(), rtol=1e-5, atol=1e-5 * 3e38 if value == 3e38 else 1e-5, equal_nan=True
        )
