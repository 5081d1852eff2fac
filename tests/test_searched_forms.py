"""Formulas whose digits only the search for other forms keeps, over the range, with odd values of scalars.

Values and gradients are compared with exact values, by the CPU's kernels and by the emulated CUDA text.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
import torch
from elements import Elements
from test_stable import Row, as_eager, both, row, signed
from verdicts import results, wrong

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
BEYOND, NEAR = "an intermediate over- or underflows", "a sum cancels"
ROWS: dict[str, Row] = {
    "hypot_far": both("sqrt(x * x + y * y)", (3e30, 4e30), (-3e-30, 4e-30), (1e-3, 2.0), why=BEYOND),
    "charbonnier": row("sqrt(x * x + eps * eps)", *signed(1e-30, 1e30, 2.0), why=BEYOND, eps=0.0),
    "pseudo_huber": row(
        "d**2 * (sqrt(1 + (x / d)**2) - 1)", *signed(1e-10, 0.3, 40.0, 1e25), why=NEAR, d=1.5
    ),
    "gelu_of_multiple": row("0.5 * x * (1 + erf(100 * x))", *signed(1e38, 1e-3), why=BEYOND),
    "power_of_sigmoid": row("sigmoid(x)**-1.5", -40, -55, 3, 20, why=BEYOND),
    "radial": as_eager(row("exp(-g * (x - d)**2)", *signed(1e25, 1.5), why=BEYOND, g=0.5, d=1.0)),
    "x_minus_sine": row("x - sin(x)", *signed(1e-8, 1e-3, 0.9, 3.0), why=NEAR),
    "phi_2": row("(exp(x) - 1 - x) / (x * x)", *signed(1e-9, 1e-3, 0.7, 5.0), why=NEAR),
    "roots_apart": row("sqrt(x + 1) - sqrt(x)", 1e-3, 1e5, 1e20, why=NEAR),
    # between 1 and 8 no form is known in which the slope 2 x y - 2 / sqrt(pi) keeps its digits
    "scaled_erfc": as_eager(row("exp(x * x) * erfc(x)", -2, 0.5, 20, 1e10, why=BEYOND)),
    "log_1m_exp": row("log(1 - exp(-x))", 1e-9, 0.5, 5, 50, why=NEAR),
    "asinh_by_log": as_eager(row("log(x + sqrt(x * x + 1))", *signed(1e-9, 1e-3, 3.0, 1e30), why=NEAR)),
    "atanh_by_log": row("log((1 + x) / (1 - x))", *signed(1e-9, 1e-3, 0.5), why=NEAR),
    "quotient_and_term": as_eager(
        both(
            "x / sqrt(1 + square(x * x)) + y",
            (8e30, -1.1),
            (-3e33, 2.0),
            (0.5, 0.3),
            why="a denominator overflows",
        )
    ),
    "root_less_x": both("sqrt(x * x + y * y) - x", (1e4, 1.3), (-5.0, 2.0), (100.0, 1e-3), why=NEAR),
}


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Elements]:
    """A function from the name of a row to its kernels, compiled once."""
    folder, made = tmp_path_factory.mktemp("searched"), dict[str, Elements]()

    def get(name: str) -> Elements:
        if name not in made:
            made[name] = Elements(ROWS[name].formula, name, folder)
        return made[name]

    return get


@pytest.mark.few(6)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ROWS)
def test_the_search_finds_a_form_that_keeps_the_digits(
    build: Callable[[str], Elements], name: str, device: str
) -> None:
    it, elements = ROWS[name], build(name)
    kinds = (torch.float32, torch.float64)
    found = [r for kind in kinds for r in results(elements, device, it.points, kind) if wrong(r, it.bound)]
    assert not found, f"{it.formula.formula}: {it.why}\n" + "\n".join(map(str, found))
