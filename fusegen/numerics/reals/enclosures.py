"""Rigorous enclosures of increasing functions of one number.

mpmath's interval arithmetic rounds outward, and series have a bound for what is left out. Farther out than
`FAR`, the bounds of a function are its limit and its value at `FAR`, since it is increasing.

Source: Moore, Kearfott and Cloud 2009, Introduction to Interval Analysis; Abramowitz and Stegun 1964,
Handbook of Mathematical Functions, 7.1.6.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

from mpmath.ctx_iv import MPIntervalContext
from mpmath.libmp import to_rational

from fusegen.core.interval import INFINITY, Bound, Interval

BITS = 192
iv: Any = MPIntervalContext()
iv.prec = BITS
FAR = 512  # no further out is anything evaluated
LIMIT = 8  # beyond, erfc(z) is less than e^(-z²)

TINY, HUGE = Fraction(1, 2 ** (2 * FAR)), Fraction(2 ** (2 * FAR))
ROUNDED: tuple[tuple[Bound, Bound], ...] = ((Fraction(0), HUGE), (TINY, INFINITY))  # a low end, a high end

Enclosure = Callable[[Any], Any]  # from an mpmath interval to one


def _erf(z: Any) -> Any:
    """2 z e^(-z²) / √π times the sum of (2z²)^n / (1 · 3 · ... · (2n + 1)), whose terms are positive."""
    twice = 2 * z**2
    term = total = iv.mpf(1)
    n = 0
    while term.b > iv.mpf(2) ** -BITS or 2 * twice.b > 2 * n + 3:
        n += 1
        term = term * twice / (2 * n + 1)
        total = total + term
    total = total + iv.mpf([0, 1]) * term  # the terms that follow halve at least
    return 2 * z * iv.exp(-(z**2)) * total / iv.sqrt(iv.pi)


def erf(x: Any) -> Any:
    """Return the error function."""
    if x.b < -LIMIT:
        return -erf(-x)
    if x.a > LIMIT:
        return 1 - iv.mpf([0, 1]) * iv.exp(-(x**2))
    return _erf(x)


def ndtr(x: Any) -> Any:
    """Return the distribution function of the normal distribution."""
    z = x / iv.sqrt(2)
    if z.b < -LIMIT:
        return iv.mpf([0, 1]) * iv.exp(-(z**2)) / 2
    return (1 + erf(z)) / 2


def exp(x: Any) -> Any:
    """e^x."""
    return iv.exp(x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + e^-x)."""
    return 1 / (1 + iv.exp(-x))


def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent."""
    return 1 - 2 / (1 + iv.exp(2 * x))


def softplus(x: Any) -> Any:
    """log(1 + e^x)."""
    return iv.log(1 + iv.exp(x))


def tanh_softplus(x: Any) -> Any:
    """tanh(log(1 + e^x)) as n / (n + 2) of n = e^x (e^x + 2)."""
    e = iv.exp(x)
    return 1 - 2 / (e * (e + 2) + 2)


def tanh_of_exp(x: Any) -> Any:
    """tanh(e^x)."""
    e = iv.exp(x)
    return tanh(e) if e.b < FAR else iv.mpf([1 - iv.exp(-2 * FAR).b, 1])


def relu6(x: Any) -> Any:
    """min(max(x, 0), 6)."""
    return iv.mpf([min(max(end, iv.mpf(0)), iv.mpf(6)) for end in (x.a, x.b)])


@cache
def enclosed(function: Enclosure, at: Fraction, limits: tuple[Bound, Bound]) -> tuple[Bound, Bound]:
    """Return bounds of an increasing function of mpmath intervals at a number, by its limits."""
    near = max(Fraction(-FAR), min(at, Fraction(FAR)))
    low, high = map(_bound, function(exact(near))._mpi_, ROUNDED)
    return (
        limits[0] if at < near else max(low, limits[0]),
        limits[1] if at > near else min(high, limits[1]),
    )


def increasing(function: Enclosure, limits: tuple[Bound, Bound], over: Interval) -> Interval:
    """Return every value of an increasing function over an interval."""
    low = limits[0] if over.low == -INFINITY else enclosed(function, Fraction(over.low), limits)[0]
    high = limits[1] if over.high == INFINITY else enclosed(function, Fraction(over.high), limits)[1]
    return Interval(low, high)


def _bound(end: Any, rounded: tuple[Bound, Bound]) -> Bound:
    """Return a non-negative end as a fraction; one of `rounded` where it is tiny or huge."""
    _, mantissa, exponent, bits = end
    if mantissa and abs(exponent + bits) > FAR * 2:
        return rounded[exponent > 0]
    return Fraction(*to_rational(end))


def exact(value: Fraction) -> Any:
    """Return the mpmath interval around a number."""
    return iv.mpf(value.numerator) / value.denominator
