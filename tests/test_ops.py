"""Every row of the table of operations: its range, its real function, its spellings."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fusegen.interval import REALS, Interval, between, point
from fusegen.ops import ATOM, CONSTANTS, FUNCTIONS, OPS, Op, argument_count, called

# what each row is over the real numbers, said a second time in mpmath
REFERENCE: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "where": lambda condition, a, b: a if condition else b,
    "pi": lambda: mpmath.mpf(mpmath.pi),
    "e": lambda: mpmath.mpf(mpmath.e),
    "relu": lambda x: max(x, 0),
    "relu6": lambda x: min(max(x, 0), 6),
    "clamp": lambda x, low, high: min(max(x, low), high),
    "clamp_min": max,
    "clamp_max": min,
    "minimum": min,
    "maximum": max,
    "abs": abs,
    "sign": mpmath.sign,
    "square": lambda x: x * x,
    "cube": lambda x: x * x * x,
    "reciprocal": lambda x: 1 / x,
    "sqrt": mpmath.sqrt,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "pow": mpmath.power,
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.power(2, x),
    "expm1": mpmath.expm1,
    "log": mpmath.log,
    "log2": lambda x: mpmath.log(x, 2),
    "log1p": mpmath.log1p,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tanh": mpmath.tanh,
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log(1 + mpmath.exp(x)),
    "rounded": lambda x: x,
}
ROWS = pytest.mark.parametrize("row", OPS.values(), ids=lambda row: row.name)
POSITIVE = {"sqrt", "rsqrt", "log", "log2"}


def test_every_row_has_a_reference() -> None:
    assert set(REFERENCE) == set(OPS)


def numbers() -> st.SearchStrategy[Fraction]:
    """Signed numbers of every size that an exponential can take, and the kinks."""
    size = st.builds(lambda m, e: Fraction(m) * Fraction(10) ** e, st.floats(1, 10), st.integers(-12, 2))
    sizes = st.sampled_from([Fraction(0), Fraction(1), Fraction(6)]) | size
    return st.builds(lambda s, v: s * v, st.sampled_from([-1, 1]), sizes)


def arguments(row: Op, data: st.DataObject) -> list[Fraction]:
    """Numbers at which a row has a real value."""
    values = [data.draw(numbers()) for _ in row.args]
    if row.name in POSITIVE:
        values = [abs(v) for v in values]
        assume(values[0] != 0)
    if row.name in ("div", "reciprocal"):
        assume(values[-1] != 0)
    if row.name == "log1p":
        assume(values[0] > -1)
    if row.name == "pow":
        values = [abs(values[0]) + 1, Fraction(round(values[1]) % 40 - 20, 4)]
    return values


def real(row: Op, values: list[Fraction]) -> Any:
    """The value of the reference, to 60 digits."""
    given = [mpmath.mpf(v.numerator) / v.denominator for v in values]
    return REFERENCE[row.name](*(_condition(row, given)))


def _condition(row: Op, given: list[Any]) -> list[Any]:
    return [given[0] > 0, *given[1:]] if row.name == "where" else given


def inside(range_: Interval, value: Any) -> bool:
    low, high = (
        mpmath.mpf(end) if isinstance(end, float) else mpmath.mpf(end.numerator) / end.denominator
        for end in (range_.low, range_.high)
    )
    return bool(low <= value <= high)


@ROWS
@settings(max_examples=12)
@given(data=st.data())
def test_a_range_holds_every_value(row: Op, data: st.DataObject) -> None:
    values = arguments(row, data)
    with mpmath.workdps(60):
        value = real(row, values)
        assert inside(row.range(*map(point, values)), value)
        wide = [between(min(v, data.draw(numbers())), max(v, data.draw(numbers()))) for v in values]
        assert inside(row.range(*wide), value)
        assert inside(row.range(*(REALS for _ in values)), value)


@ROWS
@settings(max_examples=8)
@given(data=st.data())
def test_the_sympy_function_is_the_reference(row: Op, data: st.DataObject) -> None:
    values = arguments(row, data)
    symbols = [sympy.Rational(v.numerator, v.denominator) for v in values]
    if row.name == "where":
        symbols = [sympy.true if values[0] > 0 else sympy.false, *symbols[1:]]
    with mpmath.workdps(60):
        expected = real(row, values)
        found = row.real(*symbols)
        if row.boolean:
            assert bool(found) == bool(expected)
        else:
            close = mpmath.mpf(str(sympy.sympify(found).evalf(50)))
            assert mpmath.almosteq(close, expected, rel_eps=1e-35, abs_eps=1e-60)


ONE = np.float32(1)
FLOATS: dict[str, Callable[..., Any]] = {
    "relu": lambda x: np.where(x < 0, np.float32(0), x),
    "abs": np.abs,
    "sign": np.sign,
    "square": lambda x: x * x,
    "cube": lambda x: x * x * x,
    "reciprocal": lambda x: ONE / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: ONE / np.sqrt(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sigmoid": lambda x: ONE / (ONE + np.exp(-x)),
    "softplus": lambda x: np.where(x > 0, x, np.float32(0)) + np.log1p(np.exp(-np.abs(x))),
}
ENDS = [0.0, 1e-45, 1.1754944e-38, 1e-3, 1.0, 2.5, 88.0, 89.0, 104.0, 1e19, 3.4028235e38, math.inf]


@pytest.mark.parametrize("name", FLOATS)
def test_a_range_holds_what_floats_give_at_the_ends(name: str) -> None:
    for low in [-end for end in ENDS] + ENDS:
        range_ = OPS[name].range(between(low if math.isinf(low) else Fraction(low), math.inf))
        points = np.array([sign * end for end in ENDS for sign in (1.0, -1.0)], np.float32)
        points = points[points >= np.float32(low)]  # -0.0 among them where low is zero
        with np.errstate(all="ignore"):
            values = FLOATS[name](points)
        values = values[~np.isnan(values)]
        assert (values >= np.float64(float(range_.low))).all(), low
        assert (values <= np.float64(float(range_.high))).all(), low


@ROWS
def test_a_row_has_one_spelling(row: Op) -> None:
    spellings = [bool(row.infix), bool(row.libm), bool(row.body)]
    expected = 0 if row.name in ("where", "pi", "e", "rounded") else 1
    assert sum(spellings) == expected


@ROWS
def test_a_row_is_consistent(row: Op) -> None:
    assert OPS[row.name] is row
    assert row.name.isidentifier()
    assert not keyword.iskeyword(row.name)
    assert len(set(row.args)) == len(row.args)
    assert row.signature == f"{row.name}({', '.join(row.args)})"
    assert row.written or row.name not in FUNCTIONS
    assert (row.strength < ATOM) == bool(row.infix or row.name == "where")
    holes = set(re.findall(r"{(\d)}", row.notation))
    assert not holes or holes == {str(index) for index in range(len(row.args))}
    if row.boolean:
        assert row.range(REALS, REALS) == between(0, 1)


@pytest.mark.parametrize("row", [row for row in OPS.values() if row.body], ids=lambda row: row.name)
def test_a_body_is_a_function_of_its_arguments_in_the_math_type(row: Op) -> None:
    body = row.body.format(m="std::")
    assert body.endswith(";")
    assert body.count("return ") == 1
    words = set(re.findall(r"(?<![:.\w])[A-Za-z_]\w*", body))
    assert set(row.args) <= words
    assert words - set(row.args) <= {"return", "M", "std"}
    for literal in re.findall(r"(?<![\w.])\d[\d.]*", body):
        compared = re.search(rf"[<>=] {literal}\b", body)
        assert compared or f"M({literal})" in body, "a bare literal would compute in another type"


def test_names_of_functions_of_cpp_do_not_differ_from_their_names_here() -> None:
    for row in OPS.values():
        assert row.libm in ("", row.name, f"f{row.name}")


def test_functions_and_constants_are_what_a_formula_may_name() -> None:
    assert set(CONSTANTS) == {"pi", "e"}
    assert not set(CONSTANTS) & set(FUNCTIONS)
    assert set(FUNCTIONS) == {row.name for row in OPS.values() if row.written and row.args}
    assert "rounded" not in FUNCTIONS


def test_a_bound_of_clamp_may_be_left_out() -> None:
    clamp = OPS["clamp"]
    assert called(clamp, ["x", "min", "max"]) is clamp
    assert called(clamp, ["x", "min"]) is OPS["clamp_min"]
    assert called(clamp, ["max", "x"]) is OPS["clamp_max"]
    assert called(clamp, ["x"]) is None
    assert called(OPS["relu"], []) is None
    assert argument_count(clamp) == "2 or 3 arguments"
    assert argument_count(OPS["relu"]) == "1 argument"
    assert argument_count(OPS["where"]) == "3 arguments"


@pytest.mark.parametrize(
    ("name", "range_"),
    [
        ("relu", between(0, math.inf)),
        ("relu6", between(0, 6)),
        ("tanh", between(-1, 1)),
        ("sigmoid", between(0, 1)),
        ("exp", between(0, math.inf)),
        ("expm1", between(-1, math.inf)),
        ("softplus", between(0, math.inf)),
        ("abs", between(0, math.inf)),
        ("square", between(0, math.inf)),
        ("erf", between(-1, 1)),
        ("erfc", between(0, 2)),
        ("sin", between(-2, 2)),
    ],
)
def test_the_ranges_that_the_simplifier_lives_on(name: str, range_: Interval) -> None:
    assert OPS[name].range(REALS) == range_
