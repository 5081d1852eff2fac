"""Sums that are squares: 9 x⁴ - 162 x² + 729 is 9 ((x - 3) (x + 3))², which keeps its digits at ±3.

A sum of three products loses every digit next to a double zero, where nothing tells the sign of what is
left. A difference of two near numbers is exact, and so is the sign of its square.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from fusegen.algebra.simplify.differences import factored
from fusegen.algebra.simplify.monomials import Product, gathered, sum_of, sum_term, term_of
from fusegen.core.term import Apply, Name, Number, Term, call, substitute


def with_double_zero(term: Term, steps: Mapping[str, Term]) -> Term | None:
    """Return a sum with a double zero, times a common factor, as a square; None of any other sum.

    A sum of quotients is one over their common denominator, as the slope of a rational function is.
    """
    if not (isinstance(term, Apply) and term.op in ("add", "sub")):
        return None
    if whole_square := square_of_difference(term):
        return whole_square
    below = (f.base for part in sum_of(term) for f in part.factors if f.power < 0)
    written = {
        each.name: steps[each.name] for each in below if isinstance(each, Name) and each.name in steps
    }
    whole = factored(substitute(term, written))
    if whole is None or all(factor.power > 0 for factor in whole[0].factors):
        return None
    common, rest = whole
    found = _difference(sum_term(rest))
    if found is None:
        return None
    scale, difference = found
    names = {step: Name(name) for name, step in written.items()}
    factors = [replace(f, base=names.get(f.base, f.base)) for f in common.factors]
    squared = next((f for f in factors if f.power == -2), None)
    if squared is not None:  # the quotient before its square: that overflows later
        factors.remove(squared)
        difference = difference / squared.base
    outside = Product(common.coefficient * scale, tuple(factors))
    return term_of(outside) * call("square", difference)


def square_of_difference(term: Term) -> Term | None:
    """Return a sum a t² - b t + c with a double zero as a square; None of any other sum."""
    found = _difference(term)
    if found is None:
        return None
    scale, difference = found
    square = call("square", difference)
    return square if scale == 1 else square * Number(scale)


def _difference(term: Term) -> tuple[Fraction, Term] | None:
    """Return what a sum is the square of, times a number, and that number first."""
    parts = gathered(sum_of(term))
    if len(parts) != 3 or any(len(part.factors) > 1 for part in parts):
        return None
    last, middle, first = sorted(parts, key=_power)
    a, b, c = first.coefficient, middle.coefficient, last.coefficient
    if last.factors or not middle.factors or first.factors[0].base != middle.factors[0].base:
        return None
    power = _power(middle)
    if _power(first) != 2 * power or b * b != 4 * a * c or not a * b < 0:
        return None
    base, zero = first.factors[0].base, -b / (2 * a)
    found = Fraction(math.isqrt(zero.numerator), math.isqrt(zero.denominator))
    root = found if found * found == zero else None
    if power == 2 and root is not None:
        return a, (base - Number(root)) * (base + Number(root))
    return a, sum_term((Product(Fraction(1), middle.factors), Product(-zero)))


def _power(part: Product) -> Fraction:
    """Return the power of a product's only factor; 0 if it has none."""
    return part.factors[0].power if part.factors else Fraction(0)
