"""Patterns in terms: expressions with a function of their own, and operations of double-word arguments."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from fusegen.lower.error_budget import scaled
from fusegen.ops import PRODUCTS, ROWS, SINGLE_WORD_VALUED
from fusegen.ops.kernels import CURVE
from fusegen.ops.row import Words
from fusegen.term import Apply, Let, Name, Term, applied, call

ARITHMETIC = ("add", "sub", "mul", "neg", "square", "cube")
ARGUMENTS = ("exp", "erf", "tanh", "prescaled", "unscale", CURVE, *PRODUCTS)  # take a double-word value
INEXACT = SINGLE_WORD_VALUED - {"exp"}  # in float on CUDA, by several ulp
LARGE = 2**60


def inexact_factors(term: Term) -> int:
    """The number of factors of a product that err by several ulp."""
    match term:
        case Apply("mul", factors):
            return sum(map(inexact_factors, factors))
    return not applied((term,)).isdisjoint(INEXACT)


def odd_cubic(term: Term) -> tuple[Term, Fraction, Fraction] | None:
    """The x, slope and bend of slope x + bend x^3, where both are of one sign and of ordinary size."""
    slope, whole = scaled(term)
    match whole:
        case Apply("add", (x, bent)):
            bend, cube = scaled(bent)
            ordinary = all(1 / LARGE < size < LARGE for size in (abs(slope), abs(slope) * bend))
            return (x, slope, slope * bend) if ordinary and cube == call("cube", x) else None
    return None


def gate_and_slope(a: Term, b: Term) -> tuple[Term, Term] | None:
    """Of the sum of a sigmoid and a product with its slope, the other factors and the argument."""
    match a:
        case Apply("sigmoid", (t,)) if by := without(b, call("sigmoid_slope", t)):
            return by, t
    return None


def not_prescaled(product: Term, argument: Term) -> Term | None:
    """A product with the slope of a gate, without its prescaling, which a single word does not need."""
    match product:
        case Apply("add", (a, b)) if (found := gate_and_slope(a, b)) and found[1] == call(
            "prescaled", argument
        ):
            return call("sigmoid", argument) + found[0] * call("sigmoid_slope", argument)
        case Apply("mul", (a, b)) if (whole := not_prescaled(a, argument)) is not None:
            return whole * b
        case Apply("mul", (a, b)) if (whole := not_prescaled(b, argument)) is not None:
            return a * whole
    return None


def without(product: Term, factor: Term) -> Term | None:
    """A product's other factors, if it has this one."""
    match product:
        case Apply("mul", (a, b)) if factor in (a, b):
            return b if a == factor else a
        case Apply("mul", (a, b)) if (rest := without(a, factor)) is not None:
            return rest * b
    return None


def names_wanted(lets: Sequence[Let], results: Sequence[Term]) -> set[str]:
    """The names that double-word arguments are computed from."""
    found: set[str] = set()

    def seek(term: Term, inside: bool) -> None:
        if isinstance(term, Name) and inside:
            found.add(term.name)
        if isinstance(term, Apply):
            takes_two = term.op in ARGUMENTS or ROWS[term.op].words is Words.DOUBLE
            deeper = takes_two or (inside and term.op in ARITHMETIC)
            for arg in term.args:
                seek(arg, deeper)

    for result in results:
        seek(result, False)
    for let in reversed(lets):
        seek(let.term, let.name in found)
    return found
