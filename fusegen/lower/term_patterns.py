"""Patterns in terms: expressions with a function of their own, and operations of double-word arguments."""

import operator
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import reduce

from fusegen.core.ops import PRODUCTS, ROWS, SINGLE_WORD_VALUED
from fusegen.core.ops.double_word import CURVE
from fusegen.core.ops.row import Words
from fusegen.core.term import Apply, Let, Name, Number, Term, applied, call
from fusegen.lower.error_budget import scaled

ARITHMETIC = ("add", "sub", "mul", "neg", "square", "cube")
BOUNDS = ("clamp_to_lowest", "clamp_to_highest")
# whose tails fall like e^(-x^2 / 2): eager has no digit there, a rounded argument would be all the error
TAILS = ("ndtr", "times_ndtr", "times_ndtr_slope")
ARGUMENTS = ("exp", "erf", "tanh", "prescaled", "unscale", CURVE, *PRODUCTS)  # take a double-word value
INEXACT = SINGLE_WORD_VALUED - {"exp"}  # in float on CUDA, by several ulp
GATES = ("sigmoid", "sigmoid_slope")
LARGE = 2**60
# the common factors of a sum, the other factors of the slope, and the argument
GateSum = tuple[tuple[Term, ...], tuple[Term, ...], Term]


def inexact_factors(term: Term) -> int:
    """Return the number of factors of a product that err by several ulp."""
    match term:
        case Apply("mul", factors):
            return sum(map(inexact_factors, factors))
    return not applied((term,)).isdisjoint(INEXACT)


def one_number(op: str, a: Term, b: Term) -> Term | None:
    """A quotient by a number as a product, and a product with two numbers as one with their product."""
    match op, a, b:
        case "div", _, Number(value):
            return a * Number(1 / value)
        case "mul", Number(value), Apply("mul", (Number(other), rest)):
            return Number(value * other) * rest
    return None


def odd_cubic(term: Term) -> tuple[Term, Fraction, Fraction] | None:
    """The x, slope and bend of slope x + bend x^3, where both are of one sign and of ordinary size."""
    slope, whole = scaled(term)
    match whole:
        case Apply("add", (x, bent)):
            bend, cube = scaled(bent)
            ordinary = all(1 / LARGE < size < LARGE for size in (abs(slope), abs(slope) * bend))
            return (x, slope, slope * bend) if ordinary and cube == call("cube", x) else None
    return None


def gate_and_slope(a: Term, b: Term, steps: Mapping[str, Term]) -> GateSum | None:
    """The sum of a sigmoid and its slope, each times other factors, as one function times common factors.

    Args:
        a: a term of the sum.
        b: the other one; the gate may be in either.
        steps: the program's, by name; a name stands for a gate, or for a product with its slope.
    """
    for gates, slopes in ((factors(a, steps), factors(b, steps)), (factors(b, steps), factors(a, steps))):
        for gate in gates:
            match gate:
                case Apply("sigmoid", (t,)) if call("sigmoid_slope", t) in slopes:
                    common, by = list(gates), list(slopes)
                    common.remove(gate)
                    by.remove(call("sigmoid_slope", t))
                    if all(common.count(factor) <= by.count(factor) for factor in common):
                        for factor in common:
                            by.remove(factor)
                        return tuple(common), tuple(by), t
    return None


def factors(term: Term, steps: Mapping[str, Term]) -> list[Term]:
    """Return the factors of a product, a sigmoid or its slope among them by what their name stands for."""
    match term:
        case Apply("mul", (a, b)):
            return factors(a, steps) + factors(b, steps)
        case Name(name) if name in steps:
            inner = factors(steps[name], steps)
            return inner if any(isinstance(f, Apply) and f.op in GATES for f in inner) else [term]
    return [term]


def not_prescaled(whole: Term, argument: Term) -> Term | None:
    """A product with the slope of a gate, without its prescaling, which a single word does not need."""
    match whole:
        case Apply("add", (Apply("sigmoid", (t,)) as gate, b)) if (
            (found := gate_and_slope(gate, b, {})) and found[1] and t == call("prescaled", argument)
        ):
            return call("sigmoid", argument) + product(found[1]) * call("sigmoid_slope", argument)
        case Apply("mul", (a, b)) if (bare := not_prescaled(a, argument)) is not None:
            return bare * b
        case Apply("mul", (a, b)) if (bare := not_prescaled(b, argument)) is not None:
            return a * bare
    return None


def product(terms: Sequence[Term]) -> Term:
    """Return the product of some terms, in order; 1 of none."""
    return reduce(operator.mul, terms) if terms else Number(Fraction(1))


def bounded(term: Term) -> str | None:
    """Return the name that stands within bounds, if one does."""
    match term:
        case Name(name):
            return name
        case Apply(op, (inner,)) if op in BOUNDS:
            return bounded(inner)
    return None


def names_wanted(lets: Sequence[Let], results: Sequence[Term]) -> set[str]:
    """Return the names that double-word arguments are computed from; past a bound only those of a tail."""
    found: set[str] = set()
    of_tails: set[str] = set()

    def seek(term: Term, inside: bool, in_tail: bool) -> None:
        if isinstance(term, Name) and inside:
            found.add(term.name)
            of_tails.update([term.name] * in_tail)
        if isinstance(term, Apply):
            takes_two = term.op in ARGUMENTS or ROWS[term.op].words is Words.DOUBLE
            bounded = in_tail and term.op in BOUNDS
            deeper = takes_two or (inside and term.op in ARITHMETIC) or bounded
            tail = term.op in TAILS or (in_tail and term.op in ARITHMETIC) or bounded
            for arg in term.args:
                seek(arg, deeper, tail)

    for result in results:
        seek(result, inside=False, in_tail=False)
    for let in reversed(lets):
        seek(let.term, let.name in found, let.name in of_tails)
    return found
