"""Sums that are squares: 9 x⁴ - 162 x² + 729 is 9 ((x - 3) (x + 3))², which keeps its digits at ±3.

A sum of three products loses every digit next to a double zero, where nothing tells the sign of what is
left. A difference of two near numbers is exact, and so is the sign of its square.
"""

from __future__ import annotations

import math
from fractions import Fraction

from fusegen.simplify.monomials import Product, product_of, sum_of, sum_term
from fusegen.term import Apply, Number, Term, call


def square_of_difference(term: Term) -> Term | None:
    """Return a sum a t² - b t + c with a double zero as a square; None of any other sum."""
    if not (isinstance(term, Apply) and term.op in ("add", "sub")):
        return None
    parts = sum_of(term)
    if len(parts) != 3 or not all(map(_is_power, parts)):
        return None
    last, middle, first = sorted(parts, key=_power)
    a, b, c = first.coefficient, middle.coefficient, last.coefficient
    if last.factors or not middle.factors or first.factors[0].base != middle.factors[0].base:
        return None
    power = _power(middle)
    if _power(first) != 2 * power or b * b != 4 * a * c or not a * b < 0:
        return None
    base, zero = first.factors[0].base, -b / (2 * a)
    root = _root(zero)
    if power == 2 and root is not None:
        difference: Term = (base - Number(root)) * (base + Number(root))
    else:
        difference = sum_term((Product(Fraction(1), middle.factors), product_of(Number(-zero))))
    square = call("square", difference)
    return square if a == 1 else square * Number(a)


def _is_power(part: Product) -> bool:
    """Return True if a product has at most one factor."""
    return len(part.factors) <= 1


def _power(part: Product) -> Fraction:
    """Return the power of a product's only factor; 0 if it has none."""
    return part.factors[0].power if part.factors else Fraction(0)


def _root(square: Fraction) -> Fraction | None:
    """Return the root of a number above 0 that is a square of a fraction; else None."""
    found = Fraction(math.isqrt(square.numerator), math.isqrt(square.denominator))
    return found if found * found == square else None
