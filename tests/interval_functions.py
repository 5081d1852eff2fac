"""The functions of the formula language in intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import intervals as iv
import mpmath
from intervals import NOUGHT, ONE, TWO, UNIT, ZERO, Interval
from mpmath import libmp, mp

Function = Callable[..., Interval]
NEAR_1 = libmp.from_man_exp(
    2**20000 - 1, -20000
)  # where a function is next to 1, but for what no format holds
NEAR_0 = libmp.from_man_exp(1, -20000)
HALF, SIX = iv.rational(1, 2), iv.rational(6)


# Functions at an end of an interval, rounded down ("f") or up ("c")


def _saturating(function: Callable[[Any], Any], far: int) -> Function:
    """An odd function that increases to 1, which it is next to beyond 2**far."""

    def end(x: Any, way: str) -> Any:
        if iv.size(x) <= far:
            return ZERO if x == ZERO else iv.at_end(function, x, way)
        beyond = Interval(NEAR_1, ONE) if not x[0] else iv.neg(Interval(NEAR_1, ONE))
        return beyond.lo if way == "f" else beyond.hi

    return lambda a: Interval(end(a.lo, "f"), end(a.hi, "c"))


def _erfc_end(x: Any, way: str) -> Any:
    if iv.size(x) <= 10:
        return ONE if x == ZERO else iv.at_end(mpmath.erfc, x, way)
    beyond = Interval(ZERO, NEAR_0)
    if x[0]:
        beyond = iv.sub(TWO, beyond)
    return beyond.lo if way == "f" else beyond.hi


def _expm1_end(x: Any, way: str) -> Any:
    if iv.size(x) < -mp.prec:  # between x and x + x²
        return x if way == "f" else libmp.mpf_add(x, libmp.mpf_mul(x, x), mp.prec, "c")
    with mp.workprec(mp.prec + max(-iv.size(x), 0)):
        return libmp.mpf_sub(iv.exp_end(x, way), ONE, mp.prec, way)


def _log1p_end(x: Any, way: str) -> Any:
    if iv.size(x) < -mp.prec:  # between x - x² and x
        return x if way == "c" else libmp.mpf_sub(x, libmp.mpf_mul(x, x), mp.prec, "f")
    with mp.workprec(mp.prec + max(-iv.size(x), 0)):
        return iv.log_end(libmp.mpf_add(ONE, x, mp.prec, way), way)


def log1p(a: Interval) -> Interval:
    iv.log(iv.add(UNIT, a))  # raises where it must
    return Interval(_log1p_end(a.lo, "f"), _log1p_end(a.hi, "c"))


def _wave(function: Callable[[Any], Any]) -> Function:
    """The sine or the cosine: its slope is at most 1."""

    def of(a: Interval) -> Interval:
        wide = libmp.mpf_sub(a.hi, a.lo, mp.prec, "c")
        if libmp.finf in (wide, a.hi) or iv.size(wide) > -8 or iv.size(a.lo) > iv.LARGEST:
            return Interval(libmp.fnone, ONE)
        own = (
            Interval(*(iv.at_end(function, a.lo, way) for way in "fc")) if a.lo != ZERO else _at_0(function)
        )
        around = iv.add(own, Interval(libmp.mpf_neg(wide), wide))
        return iv.lesser(iv.greater(around, iv.neg(UNIT)), UNIT)

    return of


def _at_0(function: Callable[[Any], Any]) -> Interval:
    return NOUGHT if function is mpmath.sin else UNIT


# Functions of intervals

TANH, ERF = _saturating(mpmath.tanh, 16), _saturating(mpmath.erf, 10)
SIN, COS = _wave(mpmath.sin), _wave(mpmath.cos)


def erfc(a: Interval) -> Interval:
    return Interval(_erfc_end(a.hi, "f"), _erfc_end(a.lo, "c"))


def expm1(a: Interval) -> Interval:
    return Interval(_expm1_end(a.lo, "f"), _expm1_end(a.hi, "c"))


def ln2() -> Interval:
    return iv.log(TWO)


def exp2(a: Interval) -> Interval:
    if a.lo == a.hi and a.lo[2] >= 0 and iv.size(a.lo) < 14:  # of an integer
        return Interval(*[libmp.mpf_shift(ONE, int(mpmath.mpf(mp.make_mpf(a.lo))))] * 2)
    return iv.exp(iv.mul(a, ln2()))


def log2(a: Interval) -> Interval:
    return iv.div(iv.log(a), ln2())


def sigmoid(a: Interval) -> Interval:
    return iv.reciprocal(iv.add(UNIT, iv.exp(iv.neg(a))))


def softplus(a: Interval) -> Interval:
    high, size = iv.greater(a, NOUGHT), iv.absolute(a)
    if a.lo[0] == a.hi[0]:
        return iv.add(high, log1p(iv.exp(iv.neg(size))))
    return iv.log(iv.add(UNIT, iv.exp(a)))


def ndtr(a: Interval) -> Interval:
    return iv.mul(HALF, erfc(iv.neg(iv.mul(a, iv.sqrt(HALF)))))


def sign(a: Interval) -> Interval:
    if iv.equal(a, NOUGHT) if a == NOUGHT else False:
        return NOUGHT
    return UNIT if iv.below(NOUGHT, a) else iv.neg(UNIT)


def clamp(x: Interval, low: Interval, high: Interval) -> Interval:
    return iv.lesser(iv.greater(x, low), high)


def _integer(c: Interval) -> int | None:
    """The integer that an interval is, if it is one of ordinary size."""
    single = c.lo == c.hi and iv.size(c.lo) < 12 and (c.lo == ZERO or c.lo[2] >= 0)
    return int(mp.make_mpf(c.lo)) if single else None


def power(x: Interval, c: Interval) -> Interval:
    n = _integer(c)
    if n is None:
        if x == NOUGHT and iv.below(NOUGHT, c):
            return NOUGHT
        return iv.exp(iv.mul(c, iv.log(x)))
    if n < 0:
        return iv.reciprocal(power(x, iv.neg(c)))
    base = iv.absolute(x) if n % 2 == 0 else x
    found = UNIT
    for digit in f"{n:b}" if n else "":
        found = iv.mul(iv.mul(found, found), base if digit == "1" else UNIT)
    return found


def power_slope(x: Interval, c: Interval) -> Interval:
    if c == NOUGHT:
        return NOUGHT
    return iv.mul(c, power(x, iv.sub(c, UNIT)))


def power_slope_of_exponent(x: Interval, c: Interval) -> Interval:
    if x == NOUGHT and not iv.below(c, NOUGHT):
        return NOUGHT
    return iv.mul(power(x, c), iv.log(x))


def sech2(a: Interval) -> Interval:
    """1 / cosh² of a, without cancellation."""
    e = iv.exp(iv.neg(iv.absolute(iv.add(a, a))))
    return iv.div(iv.mul(iv.rational(4), e), iv.square(iv.add(UNIT, e)))


def bell(a: Interval) -> Interval:
    """The slope of erf."""
    return iv.mul(iv.div(TWO, iv.sqrt(pi())), iv.exp(iv.neg(iv.square(a))))


def density(a: Interval) -> Interval:
    """The slope of ndtr: e^(-a² / 2) / √(2π)."""
    return iv.div(iv.exp(iv.neg(iv.mul(HALF, iv.square(a)))), iv.sqrt(iv.mul(TWO, pi())))


def pi() -> Interval:
    return Interval(libmp.mpf_pi(mp.prec, "f"), libmp.mpf_pi(mp.prec, "c"))


def chosen(condition: bool) -> Interval:
    return UNIT if condition else NOUGHT


def between(x: Interval, low: Interval, high: Interval) -> Interval:
    return chosen(iv.below(low, x) and iv.below(x, high))


def tied(a: Interval, b: Interval) -> Interval:
    """The slope of the maximum by `a`: a half where both are equal."""
    return HALF if a == b and a.lo == a.hi else chosen(iv.below(b, a))


def one(*_: Interval) -> Interval:
    return UNIT


def nought(*_: Interval) -> Interval:
    return NOUGHT
