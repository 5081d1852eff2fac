"""Stable forms of powers: next to 1, and of an absolute value."""

from fusegen.algebra.simplify.monomials import (
    ONCE,
    Factor,
    Product,
    key,
    negated,
    product_of,
    sum_of,
    sum_term,
    summands,
    term_of,
    total,
)
from fusegen.algebra.simplify.patterns import constant
from fusegen.core.term import Apply, Number, Term, call, names


def power_less_one(term: Term) -> Term | None:
    """Rewrite p^q - 1 as expm1(q log p) where |q log p| is below 1; beyond, a power loses little."""
    parts = summands(term)
    for place, part in enumerate(parts):
        for k, factor in enumerate(part.factors):
            match factor:
                case Factor(Apply("pow", (base, exponent)) as power, times) if times == 1:
                    common = part.without(k)
                    other = _minus(common, parts)
                    if other is None or not names(exponent):
                        continue
                    size = term_of(product_of(exponent).times(product_of(_log(base))))
                    near = call("lt", call("abs", size), 1)
                    less = call("where", near, call("expm1", size), power - 1)
                    rest = [each for j, each in enumerate(parts) if j not in (place, other)]
                    return sum_term((common.times(product_of(less)), *rest))
    return None


def _minus(product: Product, parts: tuple[Product, ...]) -> int | None:
    """Find the place of the negative of a product in a sum."""
    wanted = key(negated(term_of(product)))
    return next((k for k, part in enumerate(parts) if key(term_of(part)) == wanted), None)


def _log(base: Term) -> Term:
    """Return the logarithm of a base, by log1p where that is 1 and more."""
    if isinstance(base, Number):
        return constant(call("log", base))
    if Product(ONCE) in sum_of(base):
        return call("log1p", total(base, Number(-ONCE)))
    return call("log", base)


def even_power_of_abs(term: Term) -> Term | None:
    """Return an even power of |a| as that of a, whose slope has no sign in it."""
    match term:
        case Apply("square" as op, (Apply("abs", (a,)),)):
            return call(op, a)
        case Apply("pow", (Apply("abs", (a,)), Number(n))) if n.denominator == 1 and n % 2 == 0:
            return call("pow", a, n)
    return None
