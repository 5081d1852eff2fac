"""The ranges of functions, where the intervals of their parts say too little.

x sigmoid(x) is x times what lies in [0, 1], which is any number; yet it is never below -0.2785. A row of
`FACTORS` is an increasing function F with a limit of 0 at minus infinity, for which x + F / F' increases
(log-concave functions are such). The sign of (x F)' = F' (x + F / F') then changes once: x F falls from 0
to its least value, and rises from there. A row of `INCREASING` is a function that rises everywhere.

Their values are enclosed rigorously over the real numbers, and the enclosure is widened by what a float
computation may be off: `ERROR` of its size, `TINY` where it underflows, the error of the factor where that
is a difference, and infinity where it may overflow. Signs follow from the parts, whose intervals hold the
rounded values too, so that each range is cut with theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from fusegen.core.interval import INFINITY, Bound, Interval, between
from fusegen.core.term import Name, Term, call
from fusegen.numerics.reals import enclosures
from fusegen.numerics.reals.enclosures import enclosed

ERROR = Fraction(1, 2**12)  # relative; fast functions have errors of less than 2^-16
TINY = Fraction(1, 2**64)
LARGE = Fraction(2**100)  # beyond, a product of two parts may overflow
NARROW = Fraction(1, 2**24)  # the width of the interval around the least value
MOST = Fraction(64)  # of a number in a pattern, and of its inverse
CUT = Fraction(1, 2**12)  # 10 · 64 times 2^-22: where 1 + erf and 1 + tanh are 0 exactly, and how they err


@dataclass(frozen=True, slots=True)
class Factor:
    """An increasing factor of a product with x."""

    pattern: Term  # the factor, in `a` for x, and in numbers
    function: Callable[..., Any]  # from x and the numbers, as mpmath intervals
    top: int  # its limit at infinity
    error: Fraction = TINY  # the largest absolute error of the product where it is negative


_A, _K, _M = (Name(name) for name in ("a", "k_", "m_"))
_CUBIC = _A + _M * call("cube", _A)
_CUBIC_OF_EAGER = call("fma", _A * _A * _A, _M, _A)


def _one_plus_tanh_of_cubic(x: Any, k: Any, m: Any) -> Any:
    return 2 * enclosures.sigmoid(2 * k * (x + m * x**3))


def _relu6(x: Any) -> Any:
    return enclosures.relu6(x + 3)


def _hardsigmoid(x: Any) -> Any:
    return enclosures.relu6(x + 3) / 6


FACTORS = (
    Factor(call("sigmoid", _A), enclosures.sigmoid, 1),
    Factor(1 / (1 + call("exp", -_A)), enclosures.sigmoid, 1),
    Factor(call("sigmoid", _K * _A), lambda x, k: enclosures.sigmoid(k * x), 1),
    Factor(call("sigmoid", _K * _CUBIC), lambda x, k, m: enclosures.sigmoid(k * (x + m * x**3)), 1),
    Factor(1 + call("tanh", _K * _CUBIC), _one_plus_tanh_of_cubic, 2, CUT),
    Factor(1 + call("tanh", _K * _CUBIC_OF_EAGER), _one_plus_tanh_of_cubic, 2, CUT),
    Factor(call("ndtr", _A), enclosures.ndtr, 1),
    Factor(1 + call("erf", _K * _A), lambda x, k: 1 + enclosures.erf(k * x), 2, CUT),
    Factor(call("tanh_softplus", _A), enclosures.tanh_softplus, 1),
    Factor(call("tanh", call("softplus", _A)), enclosures.tanh_softplus, 1),
    Factor(call("tanh", call("log1p", call("exp", _A))), enclosures.tanh_softplus, 1),
    Factor(call("tanh_of_exp", _A), enclosures.tanh_of_exp, 1),
    Factor(call("tanh", call("exp", _A)), enclosures.tanh_of_exp, 1),
    Factor(call("relu6", _A + 3), _relu6, 6),
    Factor(call("clamp", _A + 3, 0, 6), _relu6, 6),
    Factor(call("clamp", (_A + 3) / 6, 0, 1), _hardsigmoid, 1),
    Factor(call("clamp", _A / 6 + Fraction(1, 2), 0, 1), _hardsigmoid, 1),
)
PRODUCTS = {  # x times a factor as one operation
    "times_ndtr": call("ndtr", _A), "times_tanh_softplus": call("tanh_softplus", _A),
}  # fmt: skip
INCREASING: dict[str, tuple[enclosures.Enclosure, tuple[Bound, Bound]]] = {
    "sigmoid": (enclosures.sigmoid, (Fraction(0), Fraction(1))),
    "tanh": (enclosures.tanh, (Fraction(-1), Fraction(1))),
    "erf": (enclosures.erf, (Fraction(-1), Fraction(1))),
    "ndtr": (enclosures.ndtr, (Fraction(0), Fraction(1))),
    "softplus": (enclosures.softplus, (Fraction(0), INFINITY)),
    "exp": (enclosures.exp, (Fraction(0), INFINITY)),
    "tanh_softplus": (enclosures.tanh_softplus, (Fraction(0), Fraction(1))),
    "tanh_of_exp": (enclosures.tanh_of_exp, (Fraction(0), Fraction(1))),
}


def enclosure(row: Factor, numbers: tuple[Fraction, ...], over: Interval) -> Interval:
    """Every real value of x times a factor over an interval of x; outside, only an infinity's limit."""
    function = _with(row, numbers)
    ends = [_at(function, row.top, end) for end in (over.low, over.high)]
    least, high = min(low for low, _ in ends), max(high for _, high in ends)
    left, right = _turn(function, row.top)
    if over.low < right and over.high > left:
        least = min(least, left * enclosed(function, right, (Fraction(0), Fraction(row.top)))[1])
    return Interval(least, high)


@cache
def _with(row: Factor, numbers: tuple[Fraction, ...]) -> enclosures.Enclosure:
    """Return the factor as a function of x alone."""
    return lambda x: row.function(x, *map(enclosures.exact, numbers))


def _at(factor: enclosures.Enclosure, top: int, x: Bound) -> tuple[Bound, Bound]:
    """Return bounds of x times a factor at x."""
    if isinstance(x, float):
        return (x, x) if x > 0 else (Fraction(0), Fraction(0))
    values = [x * end for end in enclosed(factor, x, (Fraction(0), Fraction(top)))]
    return min(values), max(values)


@cache
def _turn(factor: enclosures.Enclosure, top: int) -> tuple[Fraction, Fraction]:
    """Where x times a factor has its least value: of three points the middle one is below the others."""
    left, right = Fraction(-1), Fraction(0)
    while _at(factor, top, left)[0] <= _at(factor, top, left / 2)[1]:
        left *= 2
    while right - left > NARROW:
        first, second = left + (right - left) * 3 / 8, left + (right - left) * 5 / 8
        one, other = _at(factor, top, first), _at(factor, top, second)
        if one[0] > other[1]:
            left = first
        elif other[0] > one[1]:
            right = second
        else:
            break
    return left, right


def widened(real: Interval, error: Fraction) -> Interval:
    """Return an interval of real values with what a float computation may give in their place."""
    low, high = min(real.low, LARGE), INFINITY if real.high > LARGE else real.high
    return between(low - max(low, -low) * ERROR - error, high + max(high, -high) * ERROR + error)
