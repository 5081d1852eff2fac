"""Infinities in a formula: where one may stand, what a function is of them, and bounds that are none.

They are the number `term.INFINITY`, which only selections and comparisons may read: sums and products are
rearranged as over the real numbers, which have none.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from fusegen.core.ops import OPS
from fusegen.core.term import INFINITY, Apply, Number, Program, Term, call, infinite, walk
from fusegen.errors import InfinityInArithmetic
from fusegen.numerics.ieee import value

READERS = frozenset(
    (
        "where",
        "clamp",
        "saturate",
        "clamp_min",
        "clamp_max",
        "minimum",
        "maximum",
        "round_to_storage",
        "detach",
    )
)
ABOVE, BELOW = Number(INFINITY), Number(-INFINITY)
RULE = "bound at infinity"


def check_infinities(program: Program) -> None:
    """Refuse infinities that arithmetic reads.

    Raises:
        InfinityInArithmetic: of a part of the program.
    """
    for part in (part for term in program.terms for part in walk(term)):
        if isinstance(part, Apply) and part.op not in READERS and not OPS[part.op].boolean:
            for found in part.args:
                if isinstance(found, Number) and infinite(found):
                    shown = "-inf" if found.value < 0 else "inf"
                    raise InfinityInArithmetic(found.span, what=shown)


def of_infinities(term: Apply, values: Sequence[Fraction]) -> Number | None:
    """A function of numbers some of which are infinite, as IEEE arithmetic has it; nothing for NaN."""
    found = value(term.op, [_double(each) for each in values])
    if math.isnan(found):
        return None
    size = INFINITY if math.isinf(found) else Fraction(abs(found))
    return Number(-size if found < 0 else size, term.span)


def unbounded(term: Term) -> Term | None:
    """Return a clamp without its bounds that are infinite; nothing where it has none."""
    match term:
        case Apply("clamp" | "saturate", (x, low, high)) if low == BELOW and high == ABOVE:
            return x
        case Apply("clamp" | "saturate", (x, low, high)) if low == BELOW:
            return call("clamp_max", x, high)
        case Apply("clamp" | "saturate", (x, low, high)) if high == ABOVE:
            return call("clamp_min", x, low)
        case Apply("clamp_max" | "minimum", (x, high)) if high == ABOVE:
            return x
        case Apply("clamp_min" | "maximum", (x, low)) if low == BELOW:
            return x
        case Apply("minimum", (high, x)) if high == ABOVE:
            return x
        case Apply("maximum", (low, x)) if low == BELOW:
            return x
    return None


def _double(number: Fraction) -> float:
    if abs(number) == INFINITY:
        return math.inf if number > 0 else -math.inf
    return float(number)
