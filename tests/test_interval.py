"""An interval holds what floats give: the result of an operation at points inside, rounded, lies inside."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from budget import examples
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fusegen.core import interval
from fusegen.core.interval import FLOAT32_MAX, INFINITY, REALS, Interval, between, point

FLOATS = (np.float32, np.float64)
EXTREMES = [0.0, 1.0, 6.0, 1e-45, 1.1754944e-38, 2**-126, 65504.0, 3.4028234663852886e38, math.inf]


def scaled() -> st.SearchStrategy[float]:
    """Signed floats of every size, and the extremes of float32."""
    size = st.builds(lambda m, e: m * 10.0**e, st.floats(1, 10), st.integers(-48, 38))
    return st.builds(math.copysign, st.sampled_from(EXTREMES) | size, st.sampled_from([-1.0, 1.0]))


@st.composite
def located(draw: st.DrawFn) -> tuple[Interval, float]:
    """An interval, and a point of it."""
    low, value, high = sorted(draw(scaled()) for _ in range(3))
    return between(exact(low), exact(high)), value


def exact(value: float) -> Fraction | float:
    return value if math.isinf(value) else Fraction(value)


def holds(range_: Interval, value: float) -> bool:
    return range_.low <= value <= range_.high if math.isinf(value) else inside(range_, Fraction(value))


def inside(range_: Interval, value: Fraction) -> bool:
    return range_.low <= value <= range_.high


def rounded(value: float, kind: Any, range_: Interval) -> Any:
    """A float of a kind near a point, still inside the interval, whose finite ends are float32 numbers."""
    with np.errstate(over="ignore"):
        nearest = kind(value)
    low, high = (kind(float(end)) for end in (range_.low, range_.high))
    return min(max(nearest, low), high)


BINARY: dict[str, tuple[Callable[..., Interval], Callable[..., Any]]] = {
    "add": (interval.add, lambda a, b: a + b),
    "subtract": (interval.subtract, lambda a, b: a - b),
    "multiply": (interval.multiply, lambda a, b: a * b),
    "divide": (interval.divide, lambda a, b: a / b),
    "divide by the inverse": (interval.divide, lambda a, b: a * (type(b)(1) / b)),
    "minimum": (interval.minimum, np.minimum),
    "maximum": (interval.maximum, np.maximum),
}
UNARY: dict[str, tuple[Callable[..., Interval], Callable[..., Any]]] = {
    "negate": (interval.negate, lambda a: -a),
    "absolute": (interval.absolute, abs),
    "square": (interval.square, lambda a: a * a),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", BINARY)
@settings(max_examples=examples(40))
@given(first=located(), second=located())
@example(first=(between(3, INFINITY), math.inf), second=(between(6, 6), 6.0))
@example(first=(between(0, 0), 0.0), second=(REALS, 1e38))
@example(first=(between(1, 1), 1.0), second=(between(Fraction(1, 2**149), 1), 2.0**-149))
def test_a_result_of_two_operands_lies_in_the_interval(
    name: str, kind: Any, first: tuple[Interval, float], second: tuple[Interval, float]
) -> None:
    range_of, compute = BINARY[name]
    (a, at), (b, bt) = first, second
    with np.errstate(all="ignore"):
        value = compute(rounded(at, kind, a), rounded(bt, kind, b))
    assume(not np.isnan(value))
    assert holds(range_of(a, b), float(value))


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", UNARY)
@settings(max_examples=examples(40))
@given(operand=located())
def test_a_result_of_one_operand_lies_in_the_interval(
    name: str, kind: Any, operand: tuple[Interval, float]
) -> None:
    range_of, compute = UNARY[name]
    a, at = operand
    with np.errstate(all="ignore"):
        value = compute(rounded(at, kind, a))
    assert holds(range_of(a), float(value))


@settings(max_examples=examples(40))
@given(operand=located(), low=located(), high=located())
def test_a_clamped_value_lies_in_the_interval(
    operand: tuple[Interval, float], low: tuple[Interval, float], high: tuple[Interval, float]
) -> None:
    (a, at), (b, bt), (c, ct) = operand, low, high
    assert holds(interval.clamp(a, b, c), min(max(at, bt), ct))


def bfloat16(value: Any) -> float:
    """A float32 rounded to bfloat16, to nearest, ties to even."""
    bits = int(np.float32(value).view(np.uint32))
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return float(np.uint32(bits).view(np.float32))


@given(operand=located())
@example(operand=(between(65504, 65520), 65520.0))
@example(operand=(between(-1, Fraction(1, 2**30)), 2.0**-30))
@example(operand=(between(Fraction(1, 2**149), 1), 2.0**-149))
def test_a_value_rounded_to_16_bits_lies_in_the_interval(operand: tuple[Interval, float]) -> None:
    a, at = operand
    value = rounded(at, np.float32, a)
    range_ = interval.rounded16(a)
    with np.errstate(over="ignore"):
        assert holds(range_, float(np.float16(value)))
    assert holds(range_, bfloat16(value))
    assert holds(range_, float(value))


@given(operand=located())
def test_rounding_to_16_bits_never_passes_zero(operand: tuple[Interval, float]) -> None:
    a, _ = operand
    range_ = interval.rounded16(a)
    assert (range_.low >= 0) == (a.low >= 0)
    assert (range_.high <= 0) == (a.high <= 0)


@settings(max_examples=examples(40))
@given(first=located(), second=located())
def test_a_union_holds_both(first: tuple[Interval, float], second: tuple[Interval, float]) -> None:
    (a, at), (b, bt) = first, second
    assert holds(interval.union(a, b), at)
    assert holds(interval.union(a, b), bt)
    assert interval.union(a, b) == interval.union(b, a)


@given(st.fractions(), st.integers(-160, 130))
def test_a_number_lies_between_neighbouring_float32_numbers(value: Fraction, power: int) -> None:
    number = value * Fraction(2) ** power
    range_ = point(number)
    assert inside(range_, number)
    for end in (range_.low, range_.high):
        assert math.isinf(end) or float(np.float32(float(end))) == end
    if abs(number) < FLOAT32_MAX:
        low, high = np.float32(float(range_.low)), np.float32(float(range_.high))
        assert high == low or np.nextafter(low, np.float32(np.inf)) == high


def test_ends_that_float32_holds_stay() -> None:
    for value in (0, 1, -1, 6, Fraction(1, 2**149), FLOAT32_MAX, -FLOAT32_MAX):
        assert point(Fraction(value)) == Interval(Fraction(value), Fraction(value))
    assert point(FLOAT32_MAX + 1) == Interval(FLOAT32_MAX, INFINITY)
    assert point(-FLOAT32_MAX - 1) == Interval(-INFINITY, -FLOAT32_MAX)


def test_a_division_by_an_interval_around_zero_may_give_anything() -> None:
    assert interval.divide(between(1, 2), between(-1, 1)) == REALS
    assert interval.divide(between(1, 2), between(0, 1)) == REALS
    assert interval.divide(between(1, 2), between(-1, 0)) == REALS


def test_an_interval_reads_as_mathematics_writes_it() -> None:
    assert str(between(3, INFINITY)) == "[3, inf]"
    assert str(REALS) == "[-inf, inf]"
    assert str(between(Fraction(-1, 2), Fraction(1, 4))) == "[-1/2, 1/4]"
    assert str(point(Fraction(1, 10))) == "[0.099999994, 0.100000001]"
