"""The oracle of user formulas against formulas of its own: `tests/oracle.py`, and values that are known."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import oracle
import pytest
from high_precision import slopes, value
from intervals import equal, point
from mpmath import mpf
from primitives_in_intervals import SLOPES, VALUES

from fusegen.compiler import stages
from fusegen.core.term import Program
from fusegen.language.library import Library
from fusegen.language.parse import parse_spec


def program(formula: str, *inputs: str) -> Program:
    """A formula as declared."""
    named = ", ".join(f"{name}: {{}}" for name in inputs or ("x",))
    text = f"name: it\nsummary: A test.\ninputs: {{{named}}}\nformula: {formula}\n"
    return stages.real(parse_spec(text, "it"), Library(Path("specs")))


@pytest.mark.together
@pytest.mark.parametrize("op", [op for op in VALUES if op not in ("pi", "e")])
def test_primitives_agree_with_other_formulas(op: str) -> None:
    row, one = oracle.PRIMITIVES[op], oracle.program(op)
    for at in oracle.points(op, 60, seed=3):
        exact = [oracle.converged(f, tuple(map(mpf, at))) for f in (row.value, *row.slopes)]
        found = [value(one, {}, at), *slopes(one, {}, at)[: len(SLOPES[op])]]
        for real, ours in zip(exact, found, strict=False):
            if real is not None and ours is not None:
                assert oracle.rounded(real) == pytest.approx(float_of(ours), rel=1e-15, abs=1e-320), at


def float_of(exact: Fraction | float) -> float:
    """The double nearest to a value."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@pytest.mark.parametrize(
    ("formula", "x", "expected"),
    [
        ("1 + tanh(x)", -1e300, 0.0),
        ("log(1 + exp(2 * x))", 1e300, 2e300),
        ("x * exp(-exp(-x))", -1e300, 0.0),
        ("exp(exp(exp(x)))", 1e300, math.inf),
        ("log(sigmoid(x))", -1e5, -1e5),
        ("x * 0.5 * (1 + erf(x / sqrt(2)))", -12.5, -4.665705373597142e-35),
        ("sqrt(x)", -1.0, None),
        ("1 / x", 0.0, None),
        ("sin(x)", math.inf, None),
    ],
)
def test_extreme_inputs_end_quickly(formula: str, x: float, expected: float | None) -> None:
    found = value(program(formula), {}, (x,))
    assert found == expected or (found is not None and float(found) == expected)


@pytest.mark.parametrize(
    ("formula", "x", "expected"),
    [
        ("relu(x)", 0.0, 0.0),
        ("abs(x)", 0.0, 0.0),
        ("clamp(x, -1, 1)", 1.0, 1.0),
        ("maximum(x, 0)", 0.0, 0.5),
        ("where(x > 0, x, 2 * x)", 0.0, 2.0),
        ("relu(x) - relu(x - 6)", 6.0, 1.0),
    ],
)
def test_kinks_have_the_slopes_of_pytorch(formula: str, x: float, expected: float) -> None:
    assert slopes(program(formula), {}, (x,)) == [expected]


def test_equal_numbers_are_told() -> None:
    assert equal(point(2.0), point(2.0))
    assert not equal(point(2.0), point(3.0))
