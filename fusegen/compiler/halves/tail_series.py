"""Series in place of a formula next to 0 and far out, where double loses the 16-bit result.

16-bit numbers other than 0 lie at least 2^-11 of their size apart, so that double keeps enough digits of a
sum that cancels next to them. What is lost is lost next to 0, where 1 - cos(x) is 0 in double, or far out,
where x² overflows in exp(x²) erfc(x). There a function is x^n (c0 + c1 x + c2 x² + c3 x³), or the same
in 1 / x, times e^(r x) where it falls as that does, or it is constant. The coefficients interpolate exact
values.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise

from fusegen.compiler.halves.side import Series, Side, powered
from fusegen.core.candidates import Candidate, cheapest

TERMS = 4
ENOUGH = 2.0**-15  # of the relative error of a series; an ulp of a float16 is 2^-10 of a number or less
LEFT_OUT = 2.0**-20  # of the first term: the size of one that is left out
MOST_POWER = 16
WIDEN = (4.0, 2.0, 1.0)  # the range of a series beyond the inputs that were found to miss
NODES = tuple(math.cos((2 * k + 1) * math.pi / (2 * TERMS)) for k in range(TERMS))
LEAST = 2.0**-133  # the least positive number of the 16-bit types
STEEPEST = 600.0  # of the exponent of a factor e^(r x)
TRIED = 24  # numbers at which a series is compared with the function

Exact = Callable[[float], float]


def fitted(
    missed: Sequence[float],  # the inputs
    exact: Exact,  # the function
    limits: Sequence[float],  # the number from which on each 16-bit type is infinite
) -> list[Series] | None:
    """Return series for all inputs that are missed; None where there are none for some of them."""
    found = []
    for far in (False, True):
        both, *sides = (Side(far, sign) for sign in (0, 1, -1))
        own = [x for x in missed if both.holds(x)]
        if len({x > 0 for x in own}) == 2 and (one := _series(both, own, exact, limits)):
            found.append(one)
            continue
        for side in sides:
            if here := [x for x in own if side.holds(x)]:
                one = _series(side, here, exact, limits)
                if one is None:
                    return None
                found.append(one)
    return found


def _series(side: Side, missed: Sequence[float], exact: Exact, limits: Sequence[float]) -> Series | None:
    tried = []
    for widen in WIDEN:
        edge = side.edge(missed, widen)
        values = [(x, exact(x)) for x in _tried(side, edge)]
        for series in _candidates(side, edge, exact, values):
            near = partial(_is_near, series, values, limits)
            tried.append(Candidate(series, sum(map(bool, series.terms)), near))
    return cheapest(tried)


def _candidates(
    side: Side, edge: float, exact: Exact, values: Sequence[tuple[float, float]]
) -> Iterator[Series]:
    """Yield a constant, and the series that interpolates the function."""
    for constant in (0.0, math.inf, -math.inf):
        yield Series(side, edge, Fraction(0), (constant,))
    rate = _rate(side, edge, exact) if side.far and side.sign else Fraction(0)

    def slow(x: float) -> float:
        """Return the function without the factor that falls."""
        exponent = float(rate) * x
        return exact(x) / math.exp(exponent) if abs(exponent) < STEEPEST else math.nan

    if rate:
        values = [(x, slow(x)) for x, _ in values]
    power = _power(side, values)
    if power is None or (rate and power > 0):
        return
    x, y = next(each for each in reversed(values) if each[1] and math.isfinite(each[1]))
    yield Series(side, edge, power, (y * powered(x, -power),), rate)
    for step in (2, 1):  # in the square of x or 1 / x, where the function is even or odd but for the power
        whole = not side.sign and step == 1
        nodes = [
            side.at(edge, t if whole else (side.sign or 1) * ((1 + t) / 2) ** (1 / step)) for t in NODES
        ]
        rest = [slow(x) * powered(x, -power) for x in nodes]
        if all(map(math.isfinite, rest)) and any(rest):
            found = _coefficients([(1 / x if side.far else x) ** step for x in nodes], rest)
            yield Series(side, edge, power, _spread(found, step), rate)


def _rate(side: Side, edge: float, exact: Exact) -> Fraction:
    """The rate at which a function falls far out, in quarters; 0 where it does not fall as e^(r x) does."""
    values = [abs(exact(side.sign * edge * by)) for by in (1, 2, 4)]
    if not all(0 < value < math.inf for value in values):
        return Fraction(0)
    first, second, third = map(math.log, values)
    rate = ((third - second) - (second - first)) / edge
    near = Fraction(round(4 * rate), 4) * side.sign
    return near if abs(rate * side.sign - near) < 1 / 16 and near * side.sign < 0 else Fraction(0)


def _power(side: Side, values: Sequence[tuple[float, float]]) -> Fraction | None:
    """The power of x that the function is like, in quarters, from two numbers far beyond the edge."""
    usual = [(x, y) for x, y in values if x * (side.sign or 1) > 0 and 2.0**-900 < abs(y) < 2.0**900]
    if len(usual) < 2:
        return None
    (x, y), (nearer, there) = usual[len(usual) // 2], usual[len(usual) // 2 - 1]
    if abs(x) == abs(nearer):  # the edge is next to the largest number
        return None
    power = math.log(abs(y / there)) / math.log(abs(x / nearer))
    near = Fraction(round(4 * power), 4)
    return near if abs(power - near) < 0.01 and abs(near) < MOST_POWER else None


def _coefficients(nodes: Sequence[float], values: Sequence[float]) -> tuple[float, ...]:
    points, slopes = [Fraction(t) for t in nodes], [Fraction(y) for y in values]
    for k in range(1, TERMS):  # divided differences (Newton)
        slopes[k:] = [(slopes[i] - slopes[i - 1]) / (points[i] - points[i - k]) for i in range(k, TERMS)]
    total = [Fraction(0)] * TERMS
    for slope, node in zip(reversed(slopes), reversed(points), strict=True):
        total = [slope - node * total[0], *(a - node * b for a, b in pairwise(total))]
    largest = max(map(abs, points))
    kept = [
        c if abs(c) * largest**k > LEFT_OUT * abs(total[0]) else Fraction(0) for k, c in enumerate(total)
    ]
    while len(kept) > 1 and not kept[-1]:
        kept.pop()
    return tuple(map(float, kept))


def _spread(terms: Sequence[float], step: int) -> tuple[float, ...]:
    """Return the coefficients of all powers from those of every second one, or from all."""
    found = [0.0] * (step * (len(terms) - 1) + 1)
    found[::step] = terms
    return tuple(found)


def _tried(side: Side, edge: float) -> Iterator[float]:
    """Yield numbers from the edge to the last one of 16 bits, of both signs if both are meant."""
    span = math.log2(1 / LEAST if side.far else LEAST) - (math.log2(edge))
    for k in range(TRIED):
        part = (k / (TRIED - 1)) ** 2  # closer next to the edge
        size = edge * 2.0 ** (span * part)
        size = min(size, 2.0**127) if side.far else size
        yield from (sign * size for sign in ((1, -1) if not side.sign else (side.sign,)))


def _is_near(series: Series, values: Sequence[tuple[float, float]], limits: Sequence[float]) -> bool:
    return all(_near(series, x, value, limits) for x, value in values)


def _near(series: Series, x: float, value: float, limits: Sequence[float]) -> bool:
    """True if a series gives a value, or both are rounded to the same infinity or to 0 in every type."""
    if math.isnan(value):
        return False
    try:
        given = series(x)
    except OverflowError:
        return False
    if math.isfinite(value) and abs(given - value) <= ENOUGH * abs(value):
        return True
    if abs(value) < LEAST / 2:
        return abs(given) < LEAST / 2
    return all(abs(y) >= limit for y in (given, value) for limit in limits) and given * value > 0
