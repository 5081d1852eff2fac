"""Where cubic polynomials are: how far apart, up to where, and which function they give."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusegen.core.cubic import SEGMENT, UNIFORM, Form, HalfGrid, UniformGrid, of_one_step
from fusegen.core.cubic import fits as fits_columns
from fusegen.numerics.grids import FINEST_STEP
from fusegen.numerics.grids import uniform_grid as grid_of_columns

Function = Callable[[float], float]


def uniform_grid(function: Function) -> UniformGrid:
    return grid_of_columns(lambda numbers: list(map(function, numbers)))


def fits(of: UniformGrid, function: Function, x: float, form: Form = UNIFORM) -> bool:
    return fits_columns(of, lambda numbers: list(map(function, numbers)), form)(x)


SIDES: dict[str, tuple[Function, HalfGrid]] = {
    "a line": (lambda x: x, HalfGrid(1 / 16, 5, True)),
    "a number": (lambda x: 2.0, HalfGrid(1 / 16, 5, True)),
    "a line from 0.3 on": (lambda x: max(x - 0.3, 0.0) + 1, HalfGrid(FINEST_STEP, 65, True)),
    "what grows": (lambda x: math.cosh(min(abs(x), 80.0)), HalfGrid(1 / 16, 1025, False)),
    "what rises to 1": (lambda x: 1 / (1 + math.exp(-abs(x))), HalfGrid(1 / 16, 321, True)),
    "what bends more": (lambda x: 2 + math.sin(x), HalfGrid(1 / 16, 1025, False)),
    "and more": (lambda x: 2 + math.sin(4 * x), HalfGrid(1 / 64, 4097, False)),
    "too much": (lambda x: 2 + math.sin(40 * x), HalfGrid(FINEST_STEP, 8193, False)),
    "a zero on the way": (lambda x: x - 0.7, HalfGrid(FINEST_STEP, 129, True)),
    "a tail of a normal distribution": (lambda x: math.exp(-x * x / 2), HalfGrid(FINEST_STEP, 2049, True)),
    "none": (lambda x: math.nan, HalfGrid(FINEST_STEP, 8193, False)),
}


@pytest.mark.parametrize("name", SIDES)
def test_there_are_as_few_as_a_function_lets_there_be(name: str) -> None:
    function, side = SIDES[name]
    assert uniform_grid(function).above == side
    assert uniform_grid(lambda x: function(-x)).below == side


def test_either_side_has_its_own() -> None:
    of = uniform_grid(lambda x: x + 1 if x > 0 else math.exp(x))
    assert of.above == SIDES["a line"][1]
    assert not of.below.linear_tail


@given(st.floats(-1e30, 1e30))
def test_what_is_told_is_so(x: float) -> None:
    """Of a function that every piece gives, but the one with a jump."""
    of = uniform_grid(lambda x: 3.0 if x > 5.01 else 2.0)
    step = of.above.step
    assert fits(of, lambda x: 3.0 if x > 5.01 else 2.0, x) == (round(x / step) != round(5.01 / step))


@pytest.mark.parametrize("x", [-0.0, 0.0, 1e-30, -1e-30, 1.0, -1.0])
def test_a_zero_keeps_its_sign(x: float) -> None:
    function = math.tanh
    assert fits(uniform_grid(function), function, x)
    positive = uniform_grid(abs)
    assert fits(positive, abs, x)
    assert not fits(positive, lambda x: 0.0 * -abs(x) if x else 0.0, 1e-3)


LINES = uniform_grid(lambda x: 2.0)
FORMS: dict[str, tuple[Function, float, tuple[bool, bool]]] = {  # what pieces of |x|, and of segments, give
    "the first value rounds once in a segment": (lambda x: 4.000001 + x / 3, 0.9, (True, True)),
    "a kink at 0 is within a segment's piece": (lambda x: 2.0 + abs(x), 0.01, (True, False)),
    "a kink elsewhere is in a piece of both": (lambda x: 2.0 + abs(x - 0.13), 0.13, (False, False)),
    "a zero on the way": (lambda x: x - 0.1, 0.1, (False, False)),
    "a zero at 0": (lambda x: x / 3, 0.01, (True, True)),
    "too large for a float": (lambda x: 1e300 * x**3, 0.13, (False, False)),
}


@pytest.mark.parametrize("name", FORMS)
def test_pieces_of_segments_have_their_own_form(name: str) -> None:
    function, x, expected = FORMS[name]
    assert (fits(LINES, function, x), fits(LINES, function, x, SEGMENT)) == expected


def test_sides_of_one_step_end_where_they_did() -> None:
    of = UniformGrid(HalfGrid(1 / 16, 5, True), HalfGrid(1 / 64, 4097, False))
    assert of_one_step(of, 1 / 64) == UniformGrid(HalfGrid(1 / 64, 20, True), HalfGrid(1 / 64, 4097, False))
    assert of_one_step(of, FINEST_STEP) == UniformGrid(
        HalfGrid(FINEST_STEP, 40, True), HalfGrid(FINEST_STEP, 8194, False)
    )


@given(st.floats(-1e30, 1e30), st.floats(-1e30, 1e30), st.floats(-1e30, 1e30))
def test_coefficients_of_a_segment_hold_what_the_first_leaves(
    cubic: float, linear: float, first: float
) -> None:
    highest, _, _, rest, base = SEGMENT.packed((first, linear, 0.0, cubic))
    assert abs(base + rest - first) <= abs(first) * 2.0**-28 + 2.0**-129
    assert abs(highest - cubic) <= abs(cubic) * 2.0**-11 + 2.0**-137
