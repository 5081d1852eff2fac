"""Sines and cosines of multiples of pi as functions of the multiple, whose turns are subtracted exactly.

sin(pi x) of a rounded pi x is 1e-16 at x = 1, and has no digit right at x = 2^30, where it is 0.

Source: IEEE 754-2019, 9.2.1, sinPi and cosPi.
"""

from fractions import Fraction
from math import floor

from fusegen.algebra.simplify.constants import SHORT, snapped
from fusegen.algebra.simplify.monomials import Product, negated, product_of, sum_of, sum_term
from fusegen.algebra.simplify.patterns import constant
from fusegen.core.term import Apply, Term, call

PI = product_of(constant(call("pi"))).coefficient


def of_turns(term: Term) -> Term | None:
    """Return a sine or cosine of pi times a term as that of the term's turns."""
    match term:
        case Apply("sin" | "cos" as op, (a,)):
            products = sum_of(a)
            if len([each for each in products if each.factors]) > 1 and _over_pi(product_of(a)):
                products = (product_of(a),)  # multiplied out, x - y of 0.3 (x - y) would be rounded twice
            parts = [part for each in products if (part := _over_pi(each)) is not None]
            return _less_quarters(op, parts) if len(parts) == len(products) else None
    return None


def _less_quarters(op: str, parts: list[Product]) -> Term:
    """Return the function of a sum of turns without its quarters, beside which small turns are rounded."""
    number = sum((part.coefficient for part in parts if not part.factors), Fraction(0))
    quarters = floor(2 * number)
    left = Product(number - Fraction(quarters, 2))
    turns = sum_term([part for part in parts if part.factors] + ([left] if left.coefficient else []))
    quarters += op == "cos"
    found = call("cospi" if quarters % 2 else "sinpi", turns)
    return negated(found) if quarters % 4 > 1 else found


def _over_pi(product: Product) -> Product | None:
    """Return a product over pi, if its coefficient is a short fraction times pi."""
    turns = snapped(product.coefficient / PI)
    return Product(turns, product.factors) if turns and turns.denominator < SHORT else None
