"""Functions next to a zero at 0, where low words underflow in float.

The last bit of a product's low word is 2^-48 of it, and so lost below LOST. A function like
1.7 tanh(0.7 x) is its tangent there, in which x is multiplied once.
"""

from collections.abc import Mapping
from fractions import Fraction

from fusegen.core.ir import Math
from fusegen.core.term import Apply, Name, Term
from fusegen.lower.error_budget import exact, scaled

LOST = {Math.FLOAT: 2.0**-100, Math.DOUBLE: 2.0**-910}  # sizes of an argument of ordinary slope
ORDINARY = 2**10  # of a slope, and of its inverse
OF_SLOPE_ONE = ("tanh", "expm1")  # what is x (1 + O(x)) next to 0


def tangent(term: Term, steps: Mapping[str, Term]) -> tuple[Name, Fraction] | None:
    """Return the argument and the slope of a function of a product that rounds; nothing of what is none."""
    match _line(term, steps):
        case x, slope, True if 1 / ORDINARY < abs(slope) < ORDINARY:
            return x, slope
    return None


def _line(term: Term, steps: Mapping[str, Term]) -> tuple[Name, Fraction, bool] | None:
    """The argument and the slope of a term, and whether a function is taken of a product that rounds."""
    match term:
        case Name(name):
            return _line(steps[name], steps) if name in steps else (term, Fraction(1), False)
        case Apply("mul" | "div") if (other := scaled(term)[1]) != term and (inner := _line(other, steps)):
            x, slope, rounds = inner
            return x, scaled(term)[0] * slope, rounds
        case Apply(op, (argument,)) if op in OF_SLOPE_ONE and (inner := _line(argument, steps)):
            x, slope, rounds = inner
            return x, slope, rounds or not exact(slope)
    return None
