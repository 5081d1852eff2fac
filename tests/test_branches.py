"""Sums of which terms cancel for one sign of a part: a selection knows relu and abs in its branches."""

import math
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from elements import Elements, Formula

from fusegen.algebra.nan_propagation import becomes_nan
from fusegen.algebra.simplify.branches import by_sign
from fusegen.algebra.simplify.powers import even_power_of_abs
from fusegen.core.term import Apply, Name, Program, Term, call, walk
from fusegen.numerics.reals import Reals

X, Y = Name("x"), Name("y")
RELU, ABS, SQUARE = call("relu", X), call("abs", X), call("square", X)
BELOW, ABOVE = X <= 0, X > 0


def slope(part: Term, inner: Term) -> Term:
    """The slope of x² / (1 + part²), where that of the part is `inner`."""
    t = 1 + call("square", part)
    return inner + X / t + X / t


def masked(condition: Term, part: Term, *, holds: bool) -> Term:
    t = 1 + call("square", part)
    lost = -(SQUARE / t / t * (2 * part))
    return call("where", condition, *((lost, 0) if holds else (0, lost)))


SUMS = {
    "of relu, as derived": slope(RELU, masked(BELOW, RELU, holds=False)),
    "of relu, by the other comparison": slope(RELU, masked(ABOVE, RELU, holds=True)),
    "of abs": slope(ABS, masked(BELOW, ABS, holds=False) - masked(ABOVE, ABS, holds=False)),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_apart_is_the_same_function(name: str) -> None:
    term = SUMS[name]
    found = [*by_sign(term)]
    assert found
    for after in found:
        before, apart = (Reals(Program(("x",), (), (), (each,))) for each in (term, after))
        for x in (-1e5, -2.5, -1e-3, 0.0, 1e-3, 0.75, 3.0, 1e5):
            assert apart({"x": x})[0] == pytest.approx(before({"x": x})[0], rel=1e-12, abs=0)
        assert becomes_nan(after, {"x"})


def test_what_is_false_of_a_number_may_be_false_of_nan() -> None:
    """Relu is not 0 where x > 0 is false."""
    [found] = by_sign(SUMS["of relu, by the other comparison"])
    assert isinstance(found, Apply)
    assert found.args[0] == ABOVE
    assert RELU in {*walk(found.args[2])}
    assert RELU not in {*walk(found.args[1])}


def test_selections_by_opposite_conditions_are_known_together() -> None:
    """Neither holds of NaN, which gives the last branches; a sum that is NaN may take the others."""
    term = call("where", ABOVE, Y, X) + call("where", BELOW, 3 * Y, X) - Y
    found = [after for after in by_sign(term) if isinstance(after, Apply)]
    assert {after.args[0] for after in found} == {ABOVE, BELOW}
    assert all({ABOVE, BELOW}.isdisjoint(walk(side)) for after in found for side in after.args[1:])


OTHERS = {
    "no relu": X + call("where", BELOW, 0, X),
    "nothing cancels": RELU + call("where", BELOW, 0, call("exp", X)),
    "another part": call("relu", Name("y")) * X + call("where", BELOW, 0, X),
    "a number of NaN": call("where", ABOVE, Y * Y, 0) + call("where", BELOW, 3 * Y * Y, 0) - Y,
    "no sum": call("where", BELOW, 0, RELU),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_sum_stays(name: str) -> None:
    assert [*by_sign(OTHERS[name])] == []


def test_an_even_power_of_abs_is_that_of_its_argument() -> None:
    assert even_power_of_abs(call("square", ABS)) == SQUARE
    assert even_power_of_abs(call("pow", ABS, 4)) == call("pow", X, 4)
    for other in (call("pow", ABS, 3), call("pow", ABS, Fraction(1, 2)), call("pow", ABS, X), SQUARE):
        assert even_power_of_abs(other) is None


def _from_one_side(x: Fraction) -> Fraction:
    return 2 * x if x < 0 else 2 * x / (1 + x * x) ** 2


FORMULAS: dict[str, tuple[str, Callable[[Fraction], Fraction]]] = {
    "relu": ("x * x / (1 + relu(x)**2)", _from_one_side),
    "relu of minus": ("x * x / (1 + relu(-x)**2)", lambda x: -_from_one_side(-x)),
    "abs": ("x * x / (1 + abs(x)**2)", lambda x: 2 * x / (1 + x * x) ** 2),
    "selection": (
        "where(x > 0, x * x / (1 + relu(x)**2), x)", lambda x: _from_one_side(x) if x > 0 else Fraction(1),
    ),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("name", FORMULAS)
def test_a_slope_keeps_its_digits_far_out(name: str, tmp_path: Path) -> None:
    """Eager's is 0, and rounding errors of two huge terms were 1e60 times the slope."""
    formula, exact = FORMULAS[name]
    found = Elements(Formula(formula), "far_out", tmp_path)
    sizes = [10.0**k * (1 + 2.0**-j) for k in (-30, -3, 0, 1, 6, 20, 37, 70) for j in (1, 3, 9)]
    x = torch.tensor([*sizes, *(-size for size in sizes)], dtype=torch.float64)
    grad = found("cpu", x)[1]
    for at, slope_ in zip(x.tolist(), grad.tolist(), strict=True):
        wanted = float(exact(Fraction(at)))
        assert abs(slope_ - wanted) <= 4 * math.ulp(wanted), at
