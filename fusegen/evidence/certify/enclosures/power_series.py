"""Balls in power series: comparisons, selections and the operations of arithmetic."""

import math
from collections.abc import Callable
from typing import Any

from flint import arb, arb_series, ctx, fmpz

PRECISIONS = (128, 256, 512, 1024, 2048, 4096)

Row = Callable[..., Any]  # from series and conditions to one; a condition is None where it is undecided


# --- the operations -------------------------------------------------------------------------------------


def lift(value: arb | fmpz | float, slope: arb | float = 0) -> arb_series:
    """Return a value, and its slope, as a series."""
    return arb_series([value, slope])


ctx.cap = 2
ZERO, ONE, TWO, _SIX = (lift(value) for value in (0, 1, 2, 6))
HALF, MINUS_TWO, _NAN = lift(0.5), lift(-2), lift(math.nan, math.nan)
SMALL, MINUS_SMALL = arb(2.0**-10), arb(-(2.0**-10))  # what 1 is added to, or taken from, without loss
FAR_OUT = arb(32)  # from here on, flint has the tail of the error function better as a gamma function
_EVEN = arb((1, PRECISIONS[-1] + 1))  # from here on, no number of as many bits is odd
_INDISTINCT, HALF_LEAST, OVERFLOWING = arb((1, -1100)), arb((1, -1075)), arb((1, 1024))


def _order(a: arb_series, b: arb_series) -> int | None:
    """-1, 0 or 1 as a is below b, equal or above; None where that is open, or one of them undefined."""
    p, q = a[0], b[0]
    if p > q:
        return 1
    if p < q:
        return -1
    if p == q:
        return 0
    if ctx.prec < PRECISIONS[-1]:
        return None
    return 0 if abs(p - q).abs_upper() <= _INDISTINCT * (1 + abs(p) + abs(q)) else None


def compare(*orders: int) -> Row:
    """Return the comparison that holds for some orders."""

    def holds(a: arb_series, b: arb_series) -> bool | None:
        order = _order(a, b)
        return None if order is None else order in orders

    return holds


def pick(
    a: arb_series, b: arb_series, below: arb_series, equal: arb_series, above: arb_series
) -> arb_series:
    """Return one of two values by an order."""
    order = _order(a, b)
    return _NAN if order is None else (equal, above, below)[order]


def select(condition: bool | None, chosen: arb_series, other: arb_series) -> arb_series:
    """Return one of two values, or neither where that is undecided."""
    return _NAN if condition is None else chosen if condition else other


def absolute(x: arb_series) -> arb_series:
    """Return the size of x."""
    return pick(x, ZERO, -x, ZERO, x)


def relu6(x: arb_series) -> arb_series:
    """X between 0 and 6, whose slope is 0 at both."""
    return pick(x, ZERO, ZERO, ZERO, pick(x, _SIX, x, _SIX, _SIX))


def clamp(x: arb_series, low: arb_series, high: arb_series) -> arb_series:
    """X between two bounds, whose slope is 1 at both."""
    beneath = pick(low, high, low, lift(low[0]), high)
    inside, above = pick(x, low, beneath, x, x), high if low[0].is_finite() else _NAN
    return pick(x, high, inside, inside, above)


def saturate(x: arb_series, low: arb_series, high: arb_series) -> arb_series:
    """X between two bounds, whose slope is 0 at both."""
    below, above = _order(x, low), _order(x, high)
    if below is None or above is None:
        return _NAN
    followed = ((low, below <= 0), (high, above >= 0), (x, below > 0 > above))
    return lift(clamp(x, low, high)[0], sum((of[1] for of, holds in followed if holds), arb(0)))


def minimum(a: arb_series, b: arb_series) -> arb_series:
    """Return the smaller of two."""
    return pick(a, b, a, (a + b) * HALF, b)


def mul(a: arb_series, b: arb_series) -> arb_series:
    """Return a product, which is 0 where a factor is."""
    product = a * b
    if product.length():
        return product
    return lift(a[0] * b[0], a[0] * b[1] + a[1] * b[0])  # a series that is 0 hides what is undefined


def div(a: arb_series, b: arb_series) -> arb_series:
    """Return a quotient."""
    divisor = b[0]
    value = a[0] / divisor  # of series, flint's quotient is inexact, and t / t is 1
    return lift(value, (a[1] - value * b[1]) / divisor)


def _root_of_zero(x: arb_series) -> arb_series:
    """A root where x is 0: its slope is a pole, unless x stays 0 as a relu does; so 0 + 0 t is read."""
    return ZERO if x[1].is_zero() else lift(0, math.nan)


def sqrt(x: arb_series) -> arb_series:
    """Return the square root of x."""
    return pick(x, ZERO, _NAN, _root_of_zero(x), x.sqrt())


def to_the_power(x: arb_series, c: arb_series) -> arb_series:
    """X to the power of c."""
    match _order(x, ZERO):
        case 1:
            whole = c[0].unique_fmpz() if c[0].is_integer() and abs(c[0]) <= 4096 else None
            if whole is None:
                return (c * x.log()).exp()
            power = x ** int(whole)
            return power if c[1].is_zero() else power * ((c - lift(whole)) * x.log()).exp()
        case 0:  # a pole, 1, a root, x itself, or a flat zero
            return pick(c, ZERO, _NAN, ONE, pick(c, ONE, _root_of_zero(x), x, ZERO))
        case -1 if (odd := _odd(c[0])) is not None:  # no slope by an exponent that moves
            return lift(-1 if odd else 1, 0 if c[1].is_zero() else math.nan) * to_the_power(-x, lift(c[0]))
    return _NAN


def _odd(c: arb) -> bool | None:
    """Return True for an odd integer, False for an even one; None if it is not known to be an integer."""
    if not c.is_integer() and ctx.prec < PRECISIONS[-1]:
        return None
    if abs(c) > _EVEN:
        return False if c.is_integer() else None
    whole = c.unique_fmpz()
    return None if whole is None else int(whole) % 2 == 1
