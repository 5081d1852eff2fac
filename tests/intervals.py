"""Interval arithmetic on mpmath's numbers, whose functions end quickly at every size of their argument.

An interval holds the exact value. Its ends are raw numbers of `mpmath.libmp`, rounded outwards to `mp.prec`
bits; an end may be infinite. Exponents are unbounded, but e^x of |x| > 2**LARGEST is enclosed by
`HUGE` and infinity, or by 0 and `TINY`, so that towers such as exp(exp(x)) take no time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import mpmath
from mpmath import libmp, mp

Raw = Any  # sign, mantissa, exponent and bit count of a number of mpmath's
LARGEST = 3600  # bits
GUARD = 16  # bits of a function beyond mp.prec, in which mpmath's functions err
ZERO, ONE, INF, NEG_INF = libmp.fzero, libmp.fone, libmp.finf, libmp.fninf
HUGE = libmp.from_man_exp(1, 2**LARGEST)
TINY = libmp.from_man_exp(1, -(2**LARGEST))


class Undecided(Exception):
    """The interval is too wide to tell; more bits may help."""


class Undefined(Exception):
    """The function has no value there."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers from `lo` to `hi`."""

    lo: Raw
    hi: Raw


def rational(numerator: int, denominator: int = 1) -> Interval:
    """The interval of a rational number."""
    return Interval(*(libmp.from_rational(numerator, denominator, mp.prec, way) for way in "fc"))


NOUGHT, UNIT = Interval(ZERO, ZERO), Interval(ONE, ONE)
TWO, HALF, SIX = (Interval(x, x) for x in (libmp.from_int(2), libmp.fhalf, libmp.from_int(6)))


def point(x: float) -> Interval:
    """The interval of a float; of an infinity, all that is beyond every tower that `HUGE` bounds."""
    far = {"inf": Interval(HUGE, INF), "-inf": Interval(NEG_INF, libmp.mpf_neg(HUGE))}
    return far.get(str(x)) or Interval(*[libmp.from_float(x)] * 2)


def size(x: Raw) -> int:
    """The binary exponent of a number: |x| < 2**size; more than any for an infinity."""
    if x in (INF, NEG_INF):
        return int(2**LARGEST * 4)
    return int(x[2] + x[3]) if x[1] else -int(2**LARGEST * 4)


def less(a: Raw, b: Raw) -> bool:
    """Tells whether a < b."""
    return bool(libmp.mpf_lt(a, b))


def least(*numbers: Raw) -> Raw:
    """The smallest of some numbers."""
    return reduce(lambda a, b: b if less(b, a) else a, numbers)


def most(*numbers: Raw) -> Raw:
    """The largest of some numbers."""
    return reduce(lambda a, b: b if less(a, b) else a, numbers)


# Arithmetic


def add(a: Interval, b: Interval) -> Interval:
    """The sum."""
    return Interval(libmp.mpf_add(a.lo, b.lo, mp.prec, "f"), libmp.mpf_add(a.hi, b.hi, mp.prec, "c"))


def neg(a: Interval) -> Interval:
    """The negation."""
    return Interval(libmp.mpf_neg(a.hi), libmp.mpf_neg(a.lo))


def sub(a: Interval, b: Interval) -> Interval:
    """The difference."""
    return add(a, neg(b))


def _times(a: Raw, b: Raw, way: str) -> Raw:
    return ZERO if ZERO in (a, b) else libmp.mpf_mul(a, b, mp.prec, way)


def mul(a: Interval, b: Interval) -> Interval:
    """The product; 0 times an infinite end is 0."""
    pairs = [(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return Interval(least(*(_times(*p, "f") for p in pairs)), most(*(_times(*p, "c") for p in pairs)))


def square(a: Interval) -> Interval:
    """The square."""
    return mul(absolute(a), absolute(a))


def _reciprocal_end(x: Raw, at_zero: Raw, way: str) -> Raw:
    if x in (INF, NEG_INF):
        return ZERO
    return libmp.mpf_div(ONE, x, mp.prec, way) if x != ZERO else at_zero


def reciprocal(a: Interval) -> Interval:
    """1 / a.

    Raises:
        Undefined: a is 0.
        Undecided: a may have either sign.
    """
    if a == NOUGHT:
        raise Undefined
    if less(a.lo, ZERO) and less(ZERO, a.hi):
        raise Undecided
    return Interval(_reciprocal_end(a.hi, NEG_INF, "f"), _reciprocal_end(a.lo, INF, "c"))


def div(a: Interval, b: Interval) -> Interval:
    """The quotient, exact where it can be."""
    if a.lo == a.hi and b.lo == b.hi and b != NOUGHT and INF not in (a.lo, b.lo):
        return Interval(*(libmp.mpf_div(a.lo, b.lo, mp.prec, way) for way in "fc"))
    return mul(a, reciprocal(b))


def absolute(a: Interval) -> Interval:
    """|a|."""
    if not less(a.lo, ZERO):
        return a
    return neg(a) if not less(ZERO, a.hi) else Interval(ZERO, most(libmp.mpf_neg(a.lo), a.hi))


def lesser(a: Interval, b: Interval) -> Interval:
    """The minimum of a and b."""
    return Interval(least(a.lo, b.lo), least(a.hi, b.hi))


def greater(a: Interval, b: Interval) -> Interval:
    """The maximum of a and b."""
    return Interval(most(a.lo, b.lo), most(a.hi, b.hi))


def below(a: Interval, b: Interval) -> bool:
    """Tells whether a < b.

    Raises:
        Undecided: the intervals overlap.
    """
    if less(a.hi, b.lo):
        return True
    if less(a.lo, b.hi):
        raise Undecided
    return False


def equal(a: Interval, b: Interval) -> bool:
    """Tells whether a = b.

    Raises:
        Undecided: the intervals overlap, and are no single numbers.
    """
    if less(a.hi, b.lo) or less(b.hi, a.lo):
        return False
    if a == b and a.lo == a.hi:
        return True
    raise Undecided


# Functions


def outwards(x: Raw, way: str) -> Raw:
    """A value of one of mpmath's functions, moved outwards by more than its error."""
    if x[1] == 0:
        return x
    step = libmp.mpf_shift(libmp.mpf_abs(x), -mp.prec)
    moved = libmp.mpf_sub if way == "f" else libmp.mpf_add
    return moved(x, step, mp.prec + GUARD, way)


def at_end(function: Callable[[Any], Any], x: Raw, way: str) -> Raw:
    """A function of mpmath's at an end of an interval, rounded outwards."""
    with mp.workprec(mp.prec + GUARD):
        found = function(mp.make_mpf(x))._mpf_
    return outwards(found, way)


def exp_end(x: Raw, way: str) -> Raw:
    """e^x, rounded down or up."""
    if x == ZERO:
        return ONE
    if x in (INF, NEG_INF) or size(x) > LARGEST:
        low, high = (HUGE, INF) if less(ZERO, x) else (ZERO, TINY)
        return low if way == "f" else high
    return at_end(mpmath.exp, x, way)


def exp(a: Interval) -> Interval:
    """e^a."""
    return Interval(exp_end(a.lo, "f"), exp_end(a.hi, "c"))


def log_end(x: Raw, way: str) -> Raw:
    """The natural logarithm of a positive number, rounded down or up; of 0 and infinity, its limit."""
    limits = {ZERO: NEG_INF, INF: INF, ONE: ZERO}
    return limits[x] if x in limits else at_end(mpmath.log, x, way)


def log(a: Interval) -> Interval:
    """The natural logarithm of a.

    Raises:
        Undefined: a is 0 or negative.
        Undecided: a may be.
    """
    if not less(ZERO, a.hi):
        raise Undefined
    if less(a.lo, ZERO):
        raise Undecided
    return Interval(log_end(a.lo, "f"), log_end(a.hi, "c"))


def sqrt(a: Interval) -> Interval:
    """The square root of a.

    Raises:
        Undefined: a is negative.
        Undecided: a may be.
    """
    if less(a.hi, ZERO):
        raise Undefined
    if less(a.lo, ZERO):
        raise Undecided
    ends = ((a.lo, "f"), (a.hi, "c"))
    return Interval(*(INF if x == INF else libmp.mpf_sqrt(x, mp.prec, way) for x, way in ends))
