"""Where cubic polynomials are: how far apart, up to where, and which function they give."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusegen.pieces import FINEST, Centres, Side
from fusegen.pieces import centres as centres_of_columns
from fusegen.pieces import fits as fits_columns

Function = Callable[[float], float]


def centres(function: Function) -> Centres:
    return centres_of_columns(lambda numbers: list(map(function, numbers)))


def fits(of: Centres, function: Function, x: float) -> bool:
    return fits_columns(of, lambda numbers: list(map(function, numbers)), x)


SIDES: dict[str, tuple[Function, Side]] = {
    "a line": (lambda x: x, Side(1 / 16, 5, True)),
    "a number": (lambda x: 2.0, Side(1 / 16, 5, True)),
    "a line from 0.3 on": (lambda x: max(x - 0.3, 0.0) + 1, Side(FINEST, 65, True)),
    "what grows": (lambda x: math.cosh(min(abs(x), 80.0)), Side(1 / 16, 1025, False)),
    "what rises to 1": (lambda x: 1 / (1 + math.exp(-abs(x))), Side(1 / 16, 321, True)),
    "what bends more": (lambda x: 2 + math.sin(x), Side(1 / 16, 1025, False)),
    "and more": (lambda x: 2 + math.sin(4 * x), Side(1 / 64, 4097, False)),
    "too much": (lambda x: 2 + math.sin(40 * x), Side(FINEST, 8193, False)),
    "a zero on the way": (lambda x: x - 0.7, Side(FINEST, 129, True)),
    "a tail of a normal distribution": (lambda x: math.exp(-x * x / 2), Side(FINEST, 2049, True)),
    "none": (lambda x: math.nan, Side(FINEST, 8193, False)),
}


@pytest.mark.parametrize("name", SIDES)
def test_there_are_as_few_as_a_function_lets_there_be(name: str) -> None:
    function, side = SIDES[name]
    assert centres(function).above == side
    assert centres(lambda x: function(-x)).below == side


def test_either_side_has_its_own() -> None:
    of = centres(lambda x: x + 1 if x > 0 else math.exp(x))
    assert of.above == SIDES["a line"][1]
    assert not of.below.straight


@given(st.floats(-1e30, 1e30))
def test_what_is_told_is_so(x: float) -> None:
    """Of a function that every piece gives, but the one with a jump."""
    of = centres(lambda x: 3.0 if x > 5.01 else 2.0)
    step = of.above.step
    assert fits(of, lambda x: 3.0 if x > 5.01 else 2.0, x) == (round(x / step) != round(5.01 / step))


@pytest.mark.parametrize("x", [-0.0, 0.0, 1e-30, -1e-30, 1.0, -1.0])
def test_a_zero_keeps_its_sign(x: float) -> None:
    function = math.tanh
    assert fits(centres(function), function, x)
    positive = centres(abs)
    assert fits(positive, abs, x)
    assert not fits(positive, lambda x: 0.0 * -abs(x) if x else 0.0, 1e-3)
