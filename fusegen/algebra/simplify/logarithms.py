"""Stable forms of logarithms of sums of exponentials and of their quotients."""

from fractions import Fraction
from itertools import permutations

from fusegen.algebra.simplify.exponentials import direction, two_exponentials
from fusegen.algebra.simplify.monomials import (
    HALF,
    ONCE,
    ONE,
    Factor,
    Product,
    gathered,
    key,
    multiple,
    negated,
    product_of,
    sum_of,
    sum_term,
    summands,
    term_of,
    total,
)
from fusegen.algebra.simplify.patterns import constant, unified
from fusegen.algebra.simplify.roots import root_and_argument
from fusegen.core.term import Apply, Name, Number, Term, call, names

MOST_CONSTANTS = 2  # addends without names: log(2) and a number
LOG_TWO = constant(call("log", Number(Fraction(2))))
QUOTIENT = call("log", (1 + call("exp", Name("a"))) * call("sigmoid", -Name("b")))


def log_of_sum(term: Term) -> Term | None:
    """log(p e^u + q e^v) as v' + softplus(u' - v'), where u' = u + log p.

    Of a v that moves it takes the larger in place of v, as of a number below 1/2: v' + softplus(u' - v')
    cancels where the logarithm is 0.
    """
    match term:
        case Apply("log" | "log1p" as op, (a,)):
            pair = two_exponentials(total(a, ONE) if op == "log1p" else a)
            if pair is None or min(each.coefficient for each in pair) <= 0:
                return None
            u, v = (each.logarithm for each in pair)
            apart = total(u, negated(v))
            if not names(apart) or not (names(v) or pair[1].coefficient < HALF):
                return total(v, call("softplus", apart))
            if all(each.coefficient == HALF for each in pair) and key(pair[0].exponent) == key(
                negated(pair[1].exponent)
            ):
                return log_cosh(pair[0].exponent)
            return call(
                "where",
                call("gt", direction(apart), 0),
                total(u, call("softplus", negated(apart))),
                total(v, call("softplus", apart)),
            )
    return None


def log_of_quotient(term: Term) -> Term | None:
    """log((1 + e^u) sigmoid(-v)), of (1 + e^u) / (1 + e^v), as log1p(sigmoid(v) (e^(u - v) - 1))."""
    found = unified(QUOTIENT, term, {})
    if found is None:
        return None
    u, v = found["a"], found["b"]
    return call("log1p", call("sigmoid", v) * call("expm1", _difference(u, v)))


def log_of_quotient_next_to_1(term: Term) -> Term | None:
    """Rewrite log(p / q) as log1p((p - q) / q) where the quotient is next to 1 and p - q is short."""
    match term:
        case Apply("log", (Apply("div" | "mul") as quotient,)):
            product = product_of(quotient)
            p = Product(product.coefficient, tuple(f for f in product.factors if f.power > 0))
            q = Product(ONCE, tuple(f for f in product.factors if f.power < 0)).inverse()
            return _next_to_1(term_of(p), term_of(q), term, call("abs", term_of(q)))
    return None


def difference_of_logs(term: Term) -> Term | None:
    """Rewrite log(p) - log(q) as log1p((p - q) / q) where p / q is next to 1 and p - q is short."""
    parts = summands(term)
    logs = [(k, *found) for k, part in enumerate(parts) if (found := _log(part))]
    for (i, p, common), (j, q, beside) in permutations(logs, 2):
        if common.coefficient > 0 and not gathered((common, beside)):
            plain = call("log", p) - call("log", q)
            chosen = _next_to_1(p, q, plain, q)  # both have a logarithm where q is above 0
            rest = [part for k, part in enumerate(parts) if k not in (i, j)]
            return chosen and sum_term((common.times(product_of(chosen)), *rest))
    return None


def _next_to_1(p: Term, q: Term, plain: Term, size: Term) -> Term | None:
    """Select log1p((p - q) / q) where |p - q| is below half a size, else the plain form."""
    apart = total(p, negated(q))
    if not names(p) or not names(q) or len(sum_of(apart)) >= len(sum_of(p)) + len(sum_of(q)):
        return None
    near = call("lt", call("abs", apart), HALF * size)
    return call("where", near, call("log1p", apart / q), plain)


def _log(product: Product) -> tuple[Term, Product] | None:
    """Find the argument of the logarithm in a product, and the other factors."""
    for place, factor in enumerate(product.factors):
        match factor:
            case Factor(Apply("log" | "log1p" as op, (a,)), Fraction(numerator=1, denominator=1)):
                return total(a, ONE) if op == "log1p" else a, product.without(place)
    return None


def log_of_root_plus_argument(term: Term) -> Term | None:
    """Rewrite log(a + sqrt(a^2 + c)) as log(c) / 2 plus an odd function of a, which is log1p next to 0.

    From sqrt(c) on it is log(|a| (1 + sqrt(1 + c / a^2))), which stays finite where the square overflows.
    """
    match term:
        case Apply("log", (Apply("add" | "sub") as inner,)):
            found = root_and_argument(inner)
            if found is None:
                return None
            a, c = found
            scale = constant(call("sqrt", c))
            assert isinstance(scale, Number)
            below = call("lt", a, 0)
            size = a if isinstance(a, Apply) and a.op == "abs" else call("where", below, negated(a), a)
            square = call("square", size)
            near = call(
                "log1p", multiple(1 / scale.value, size + square / (scale + call("sqrt", square + c)))
            )
            far = call("log", size * multiple(1 / scale.value, 1 + call("sqrt", 1 + c / square)))
            odd = call("where", call("lt", size, scale), near, far)
            signed = odd if size is a else call("where", below, negated(odd), odd)
            return signed if c == ONE else total(signed, constant(HALF * call("log", c)))
    return None


def _difference(u: Term, v: Term) -> Term:
    """Return the difference of two terms, products of sums multiplied out where less is left then."""
    apart = sum_of(total(u, negated(v)))
    multiplied_out = total(*(term_of(part) for product in apart for part in _distributed(product)))
    return min(total(u, negated(v)), multiplied_out, key=lambda term: len(sum_of(term)))


def _distributed(product: Product) -> list[Product]:
    """Return a product as the sum that it is when its sums are multiplied out."""
    parts = [Product(product.coefficient)]
    for factor in product.factors:
        by = sum_of(factor.base) if factor.power == 1 else (Product(ONCE, (factor,)),)
        parts = [a.times(b) for a in parts for b in by]
    return parts


def log_cosh(u: Term) -> Term:
    """log(cosh(u)), whose cosh is 1 - (e^u - 1)(e^-u - 1) / 2 next to 0."""
    size = u if isinstance(u, Apply) and u.op == "abs" else call("abs", u)
    near = call("log1p", HALF * (call("expm1", size) * -call("expm1", negated(size))))
    large = call("clamp_min", size, 1)  # by which this form is known
    far = large + call("softplus", multiple(Fraction(-2), large)) - LOG_TWO
    return call("where", call("lt", size, 1), near, far)


def log_cosh_in_parts(term: Term) -> Term | None:
    """Return the sum u + softplus(-2u) - log(2) as log(cosh(u))."""
    parts = summands(term)
    count = len(gathered(parts))
    for k, part in enumerate(parts):
        match part:
            case Product(Fraction(numerator=1, denominator=1), (Factor(Apply("softplus", (a,)), power),)):
                u = multiple(-HALF, a)
                if count - 1 > len(sum_of(u)) + MOST_CONSTANTS:
                    continue
                others = sum_term((*parts[:k], *parts[k + 1 :]))
                left = constant(total(others, negated(u)))
                large = isinstance(u, Apply) and u.op == "clamp_min" and u.args[1] == ONE
                if power == 1 and not large and left == negated(LOG_TWO):
                    return log_cosh(u)
    return None


def log_of_expm1(term: Term) -> Term | None:
    """log(e^u - 1) as u + log1p(-e^-u) from u = 1 on, where e^u soon overflows."""
    match term:
        case Apply("log", (Apply("expm1", (u,)),)):
            far = u + call("log1p", -call("exp", negated(u)))
            return call("where", call("gt", u, 1), far, term)
    return None
