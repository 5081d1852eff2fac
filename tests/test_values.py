"""Operations in double: those of the table as sympy says, words as they are computed with."""

import itertools
import math

import numpy as np
import pytest
import sympy

from fusegen.core.ops import OPS, ROWS
from fusegen.core.ops.double_word import CURVE
from fusegen.numerics.ieee import COLUMNS, VALUES, column, value

POINTS = (-90.0, -31.5, -3.7, -1.26, -0.26, -1e-3, 1e-9, 0.2, 0.7, 1.0, 1.24, 2.6, 5.5, 33.0, 88.0)
OTHERS = {1: (), 2: (1.5,), 3: (0.75, 2.0)}  # further arguments, by how many there are in all
CHOICES = {
    "where",
    "select_by_width",
    "clamp_to_lowest",
    "clamp_to_highest",
}  # their functions are not all that they are
FUNCTIONS = sorted({name for name, row in OPS.items() if row.args and not row.boolean} - CHOICES)


def test_every_operation_has_a_value() -> None:
    assert set(VALUES) == set(ROWS) - {CURVE}  # whose value is that of a kernel of its own


@pytest.mark.together
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_value_is_that_of_the_real_function(name: str) -> None:
    for x in POINTS:
        args = (x, *OTHERS[len(OPS[name].args)])
        real = sympy.N(OPS[name].real(*map(sympy.Rational, args)), 40)
        found = value(name, args)
        if real.is_real:
            assert math.isclose(found, float(real), rel_tol=1e-12, abs_tol=1e-300), (x, found, real)
        else:
            assert math.isnan(found), x


@pytest.mark.together
@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("where", (0.0, math.nan, 2.0), 2.0),
        ("lt", (math.nan, 1.0), False),
        ("add", (math.nan, 1.0), math.nan),
        ("sub", (math.inf, math.inf), math.nan),
        ("exp", (1e4,), math.inf),
        ("div", (-1.0, 0.0), -math.inf),
        ("div", (0.0, 0.0), math.nan),
        ("log", (0.0,), -math.inf),
        ("log1p", (-2.0,), math.nan),
        ("clamp_to_highest", (math.inf,), 2.0**1022),
        ("times_tanh_softplus", (-math.inf,), math.nan),  # is that of its formula
        ("times_tanh_softplus_slope", (math.inf,), 1.0),
        ("words", (1.0, 2.0**-30), 1.0 + 2.0**-30),
        ("prescaled", (-70.0,), -33.0),
    ],
)
def test_a_value_is_that_of_ieee_arithmetic(name: str, args: tuple[float, ...], expected: float) -> None:
    found = value(name, args)
    assert found == expected or (math.isnan(found) and math.isnan(expected))


SIZES = (0.0, 1e-320, 1e-9, 0.5, 0.7, 3.0, 6.0, 31.5, 1e200, math.inf)
SPECIAL = [sign * size for size in SIZES for sign in (1.0, -1.0)] + [math.nan]


@pytest.mark.together
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_has_the_bits_of_each_value(name: str) -> None:
    count = len(ROWS[name].args)
    rows = [*itertools.product(SPECIAL[:: max(1, count - 1)], repeat=count)]
    found = column(name, [np.array(args) for args in zip(*rows, strict=True)]).tolist()
    for row, a in zip(rows, found, strict=True):
        b = value(name, row)
        assert (a, math.copysign(1, a)) == (b, math.copysign(1, b)) or (a != a and b != b), row
