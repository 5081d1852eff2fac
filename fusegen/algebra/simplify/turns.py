"""Sines and cosines of multiples of pi as functions of the multiple, whose turns are subtracted exactly.

sin(pi x) of a rounded pi x is 1e-16 at x = 1, and has no digit right at x = 2^30, where it is 0.

Source: IEEE 754-2019, 9.2.1, sinPi and cosPi.
"""

from fusegen.algebra.simplify.constants import SHORT, snapped
from fusegen.algebra.simplify.monomials import Product, product_of, sum_of, sum_term, term_of
from fusegen.algebra.simplify.patterns import constant
from fusegen.core.term import Apply, Term, call

PI = product_of(constant(call("pi"))).coefficient


def of_turns(term: Term) -> Term | None:
    """Return a sine or cosine of pi times a term as that of the term's turns."""
    match term:
        case Apply("sin" | "cos" as op, (a,)):
            whole = _over_pi(product_of(a))
            parts = [whole] if whole else [_over_pi(part) for part in sum_of(a)]
            found = [part for part in parts if part is not None]
            if len(found) == len(parts):
                return call(f"{op}pi", term_of(found[0]) if whole else sum_term(found))
    return None


def _over_pi(product: Product) -> Product | None:
    """Return a product over pi, if its coefficient is a short fraction times pi."""
    turns = snapped(product.coefficient / PI)
    return Product(turns, product.factors) if turns and turns.denominator < SHORT else None
