"""Sums with a double zero, which are written as squares: relative accuracy next to the zero."""

import shutil
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from elements import Elements, Formula

from fusegen.algebra.simplify.squares import square_of_difference
from fusegen.core.term import Name, Number, Program, Term, call
from fusegen.numerics.reals import Reals

X = Name("x")
SQUARE, FOURTH = call("square", X), call("pow", X, 4)
SQUARES: dict[str, tuple[Term, float]] = {  # a sum, and its double zero
    "quick tanh's slope": (FOURTH * 9 + 729 - SQUARE * 162, 3.0),
    "of one power": (SQUARE - 3 * X + Number(Fraction(9, 4)), 1.5),
    "of an odd zero": (FOURTH - 4 * SQUARE + 4, 2**0.5),
    "below 0": (6 * SQUARE - SQUARE * SQUARE - 9, 3**0.5),
}
OTHERS = {
    "no double zero": FOURTH * 9 + 730 - SQUARE * 162,
    "no zero": FOURTH * 9 + 729 + SQUARE * 162,
    "two bases": SQUARE - 2 * X + call("square", Name("y")),
    "two products": SQUARE - X,
}


@pytest.mark.parametrize("case", SQUARES)
def test_a_sum_with_a_double_zero_is_a_square(case: str) -> None:
    term, zero = SQUARES[case]
    found = square_of_difference(term)
    assert found is not None
    before, after = (Reals(Program(("x",), (), (), (each,))) for each in (term, found))
    for x in (-2.5, -1e-3, 0.0, 0.75, zero * (1 + 2.0**-20), 1e5):
        assert after({"x": x})[0] == pytest.approx(before({"x": x})[0], rel=1e-12, abs=0)


@pytest.mark.parametrize("case", OTHERS)
def test_another_sum_stays(case: str) -> None:
    assert square_of_difference(OTHERS[case]) is None


SPELLINGS = {
    "by products": "clamp(x, -3, 3) * (27 + clamp(x, -3, 3) * clamp(x, -3, 3)) / "
    "(27 + 9 * clamp(x, -3, 3) * clamp(x, -3, 3))",
    "by powers": "clamp(x, -3, 3) * (27 + clamp(x, -3, 3)**2) / (27 + 9 * clamp(x, -3, 3)**2)",
    "without bounds": "x * (27 + x * x) / (27 + 9 * x * x)",
}


@pytest.mark.full
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_slope_keeps_its_digits_at_its_double_zero(spelling: str, device: str, tmp_path: Path) -> None:
    found = Elements(Formula(SPELLINGS[spelling]), "double_zero", tmp_path)
    x = (3 * (1 - torch.logspace(-23, -2, 512, base=2, dtype=torch.float64))).float()
    t = x.double()
    exact = 9 * ((t - 3) * (t + 3)) ** 2 / (27 + 9 * t * t) ** 2
    given = found(device, x)[1].double()
    assert float(((given - exact).abs() / exact).max()) < 4 * 2.0**-24
