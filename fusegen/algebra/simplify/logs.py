"""Stable forms of logarithms of large squares, and of a number plus a root that is next to it."""

from collections.abc import Iterator
from fractions import Fraction

from fusegen.algebra.simplify.logarithms import LOG_TWO
from fusegen.algebra.simplify.monomials import (
    HALF,
    ONCE,
    ONE,
    Factor,
    Product,
    gathered,
    multiple,
    negated,
    product_of,
    sum_of,
    sum_term,
    total,
)
from fusegen.algebra.simplify.patterns import constant
from fusegen.core.term import Apply, Number, Term, call

FAR = 2**30  # from where on a² + 1 is a² in double, too


def acosh(term: Term) -> Term | None:
    """log(a + sqrt(a² - 1)) by log1p of a - 1 and its root."""
    if not (isinstance(term, Apply) and term.op == "log"):
        return None
    for a, square in _linear_and_root(term.args[0]):
        match gathered((*sum_of(square), product_of(call("square", a)).scaled(-ONCE))):
            case [Product(Fraction(numerator=-1, denominator=1), ())]:
                above = total(a, negated(ONE))
                near = call("log1p", above + call("sqrt", above * total(a, ONE)))
                return call("where", call("gt", a, FAR), call("log", a) + LOG_TWO, near)
    return None


def _linear_and_root(base: Term) -> Iterator[tuple[Term, Term]]:
    """Yield the ways in which a sum is a + sqrt(S): the a and S."""
    parts = sum_of(base)
    for k, part in enumerate(parts):
        match part:
            case Product(Fraction(numerator=1, denominator=1), (Factor(square, power),)) if power == HALF:
                yield sum_term((*parts[:k], *parts[k + 1 :])), square


def log_of_large_square(term: Term) -> Term | None:
    """log(c + k a²) as log(k) + 2 log |a| where the square soon overflows and c is nothing beside it."""
    match term:
        case Apply("log" | "log1p" as op, (base,)):
            parts = sum_of(total(base, ONE) if op == "log1p" else base)
            for k, part in enumerate(parts):
                match part.factors:
                    case (Factor(a, Fraction(numerator=2, denominator=1)),) if part.coefficient > 0:
                        rest = sum_term((*parts[:k], *parts[k + 1 :]))
                        if isinstance(rest, Number) and abs(rest.value) < 2**20 < 2**40 * part.coefficient:
                            far = multiple(Fraction(2), call("log", call("abs", a)))
                            if part.coefficient != 1:
                                far = far + constant(call("log", Number(part.coefficient)))
                            return call("where", call("gt", call("abs", a), 2**60), far, term)
    return None
