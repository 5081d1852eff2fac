"""Stable forms of roots of a square and more: next to their argument, far out, and their slopes."""

from __future__ import annotations

from fractions import Fraction

from fusegen.simplify.monomials import (
    HALF,
    ONCE,
    Factor,
    Product,
    key,
    multiple,
    negated,
    product_of,
    sum_of,
    sum_term,
    term_of,
)
from fusegen.simplify.patterns import constant
from fusegen.term import Apply, Number, Term, call


def _square_and_more(base: Term) -> list[tuple[Term, Term, Fraction]]:
    """The ways in which a sum is k a^2 + c, of a positive k: the a, c and k."""
    found = []
    parts = sum_of(base)
    for place, product in enumerate(parts):
        match product.factors:
            case (Factor(a, Fraction(numerator=2, denominator=1)),) if product.coefficient > 0:
                rest = sum_term((*parts[:place], *parts[place + 1 :]))
                found.append((a, rest, product.coefficient))
    return found


def root_less_argument(term: Term) -> Term | None:
    """sqrt(a^2 + c) + a as c / (sqrt(a^2 + c) + |a|) where a is below 0; the same with -a."""
    if not (isinstance(term, Apply) and term.op in ("add", "sub")):
        return None
    parts = sum_of(term)
    for place, product in enumerate(parts):
        for k, factor in enumerate(product.factors):
            if factor.power != HALF:
                continue
            common = product.without(k)
            for a, c, by in _square_and_more(factor.base):
                if by != 1 or not isinstance(c, Number) or c.value <= 0:
                    continue
                for sign in (ONCE, -ONCE):
                    linear = product_of(a).times(common).scaled(sign)
                    other = next(
                        (
                            j
                            for j, part in enumerate(parts)
                            if j != place and key(term_of(part)) == key(term_of(linear))
                        ),
                        None,
                    )
                    if other is None:
                        continue
                    root, signed = term_of(Product(ONCE, (factor,))), multiple(sign, a)
                    below = call("lt", signed, 0)
                    both = root + call("where", below, negated(signed), signed)
                    chosen = call("where", below, c / both, both)
                    rest = [part for j, part in enumerate(parts) if j not in (place, other)]
                    return sum_term((common.times(product_of(chosen)), *rest))
    return None


def slope_of_root(term: Term) -> Term | None:
    """S^-1/2 - a^2 S^-3/2 as c S^-3/2, where S = a^2 + c."""
    if not (isinstance(term, Apply) and term.op in ("add", "sub")):
        return None
    parts = sum_of(term)
    for place, product in enumerate(parts):
        for k, factor in enumerate(product.factors):
            if factor.power.denominator != 2 or factor.power >= 0:
                continue
            for a, c, by in _square_and_more(factor.base):
                squared = product_of(call("square", a)).scaled(-by)
                over = Product(ONCE, (Factor(factor.base, -ONCE),))
                wanted = key(term_of(product.times(over).times(squared)))
                other = next((j for j, part in enumerate(parts) if key(term_of(part)) == wanted), None)
                if other is None:
                    continue
                rest = [part for j, part in enumerate(parts) if j not in (place, other)]
                whole = product.without(k).times(product_of(c))
                root = Product(ONCE, (Factor(factor.base, factor.power - 1),))
                return sum_term((whole.times(root), *rest))
    return None


def far_root(term: Term) -> Term | None:
    """sqrt(k a^2 + c) as sqrt(k) |a| where the square would soon overflow and c is nothing beside it."""
    match term:
        case Apply("sqrt", (Apply("add" | "sub") as base,)):
            for a, c, by in _square_and_more(base):
                if isinstance(c, Number) and 0 < c.value < 2**40 and 2**-20 < by < 2**20:
                    far = multiple(ONCE, call("abs", a))
                    if by != 1:
                        far = constant(call("sqrt", Number(by))) * far
                    return call("where", call("gt", call("abs", a), 2**60), far, term)
    return None
