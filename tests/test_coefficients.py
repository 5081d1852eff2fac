"""The arrays of coefficients: each has a row, whose bound holds, and is made again by it."""

import pytest

from benchmarks.coefficients.rows import ARRAY, INCLUDE, LEAST, NUMBER, ROWS, arrays, places
from fusegen.numerics import ieee

QUICK = ("exp_reduced", "tanh_float", "softplus_fast", "log_39", "expm1_fast")  # of those that take longest
HEADERS = sorted(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*.*h"))


def test_every_array_has_a_row_and_says_so_above() -> None:
    rows = {(*place, name) for name, row in ROWS.items() for place in places(row)}
    found = {(header, place) for header in HEADERS for place in range(len(arrays(header)))}
    assert sorted((header, place) for header, place, _ in rows) == sorted(found)
    for header, place, name in rows:
        text = (INCLUDE / header).read_text(encoding="utf-8")
        own = [m for m in ARRAY.finditer(text) if "0x" not in m[1] and len(NUMBER.findall(m[1])) >= LEAST]
        before = text[: own[place].start()].splitlines()
        assert before[-2].strip() == ROWS[name].note(name), (header, place)


@pytest.mark.few(1)
@pytest.mark.together
@pytest.mark.parametrize("name", ROWS)
def test_the_error_is_within_the_bound_and_near_it(name: str) -> None:
    row = ROWS[name]
    assert row.bound - 1 < row.error(row.coefficients) <= row.bound


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.method == "interpolated"])
def test_an_interpolating_polynomial_is_made_again_to_the_bit(name: str) -> None:
    made = ROWS[name].made()
    assert made is not None
    assert tuple(map(float, made)) == ROWS[name].coefficients


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.full)
        for name, row in ROWS.items()
        if row.method == "minimax" and not row.divisor
    ],
)
def test_a_minimax_polynomial_is_made_again_within_the_bound(name: str) -> None:
    row = ROWS[name]
    made = row.made()
    assert made is not None
    assert len(made) == len(row.coefficients)
    assert row.error(made) <= row.bound
    first = zip(row.coefficients[:3], made, strict=False)
    assert all(one == pytest.approx(float(two), rel=0.5) for one, two in first)


def test_a_changed_coefficient_breaks_the_bound() -> None:
    row = ROWS["tanh_float"]
    first, second, *rest = row.coefficients
    assert row.error((first, second * (1 + 1e-5), *rest)) > row.bound


def test_values_in_double_have_the_coefficients_of_the_header() -> None:
    assert ROWS["tanh_shrink_double"].coefficients == ieee.TANH_SHRINK
