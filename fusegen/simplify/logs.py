"""Stable forms of logarithms: of quotients, of 1 - e^u, of large squares; inverse hyperbolic functions."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from fusegen.simplify.logarithms import LOG_TWO
from fusegen.simplify.monomials import (
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
from fusegen.simplify.patterns import constant
from fusegen.simplify.rules import Fact, Rule, proved
from fusegen.term import Apply, Name, Number, Term, call

_A, _B = Name("a"), Name("b")
LOG_OF_QUOTIENT = Rule(
    "log of a quotient", call("log", _A / _B), call("log1p", (_A - _B) / _B),
    (Fact("a", ">", "zero_"), Fact("b", ">", "zero_")),
)  # fmt: skip
HALF_ANGLE = Rule("half angle", 1 - call("cos", _A), 2 * call("square", call("sin", Fraction(1, 2) * _A)))
FAR = 2**30  # from where on a² + 1 is a² in double, too


def log_of_one_minus_exp(term: Term) -> Term | None:
    """log(1 - e^u) as log1p(-e^u) below u = -log(2), where e^u is small (Mächler 2012)."""
    match term:
        case Apply("log", (Apply("neg", (Apply("expm1", (u,)),)),)):
            far = call("log1p", -call("exp", u))
            return call("where", call("lt", u, negated(LOG_TWO)), far, term)
    return None


def log_of_ratio(term: Term) -> Term | None:
    """log(p / q) as log1p((p - q) / q), or as its negative, so that the quotient is above 1."""
    match term:
        case Apply("log", (Apply("div", (p, q)),)) if proved(LOG_OF_QUOTIENT):
            apart = total(p, negated(q))
            if len(sum_of(apart)) >= len(sum_of(p)) + len(sum_of(q)):
                return None
            above = call("log1p", apart / q)
            below = call("log1p", negated(apart) / p)
            return call("where", call("gt", apart, 0), above, negated(below))
    return None


def inverse_hyperbolic(term: Term) -> Term | None:
    """log(a + sqrt(a² + 1)) as asinh(a), log(a + sqrt(a² - 1)) as acosh(a), both by log1p."""
    match term:
        case Apply("log", (Apply("where", (Apply("lt"), _, Apply("add" | "sub") as both)),)):
            base, split = both, True  # `root_less_argument` has been here
        case Apply("log", (Apply("add" | "sub") as base,)):
            split = False
        case _:
            return None
    for a, square in _linear_and_root(base):
        match a:
            case Apply("where", (Apply("lt", (signed, _)), _, Name() | Apply() as positive)) if split:
                if positive != signed:
                    continue
                a = signed
            case _ if split:
                continue
        match gathered((*sum_of(square), product_of(call("square", _unsigned(a))).scaled(-ONCE))):
            case [Product(Fraction(numerator=1, denominator=1), ())]:
                return _asinh(a)
            case [Product(Fraction(numerator=-1, denominator=1), ())] if not split:
                return _acosh(a)
    return None


def _unsigned(a: Term) -> Term:
    return a.args[0] if isinstance(a, Apply) and a.op == "abs" else a


def _linear_and_root(base: Term) -> Iterator[tuple[Term, Term]]:
    """The ways in which a sum is a + sqrt(S): the a and S."""
    parts = sum_of(base)
    for k, part in enumerate(parts):
        match part:
            case Product(Fraction(numerator=1, denominator=1), (Factor(square, power),)) if power == HALF:
                yield sum_term((*parts[:k], *parts[k + 1 :])), square


def _asinh(a: Term) -> Term:
    size = a if isinstance(a, Apply) and a.op == "abs" else call("abs", a)
    near = call("log1p", size + size * (size / (1 + call("sqrt", call("square", size) + 1))))
    value = call("where", call("gt", size, FAR), call("log", size) + LOG_TWO, near)
    return value if size == a else call("where", call("lt", a, 0), negated(value), value)


def _acosh(a: Term) -> Term:
    above = total(a, negated(ONE))
    near = call("log1p", above + call("sqrt", above * total(a, ONE)))
    return call("where", call("gt", a, FAR), call("log", a) + LOG_TWO, near)


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
