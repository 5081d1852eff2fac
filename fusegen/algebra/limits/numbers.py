"""Floats as terms, infinities among them."""

import math
from fractions import Fraction

from fusegen.core.term import INFINITY, Number, Term

INFINITE = Number(INFINITY)


def number(value: float) -> Term:
    """Return a float as a term."""
    if math.isinf(value):
        return INFINITE if value > 0 else -INFINITE
    return Number(Fraction(value))


def infinity(sign: float) -> Term:
    """Return the infinity of a sign."""
    return number(math.copysign(math.inf, sign))
