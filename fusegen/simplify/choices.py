"""Stable forms of selections: differences of relus, choices by one condition, signs in front."""

from __future__ import annotations

from fractions import Fraction

from fusegen.simplify.monomials import (
    ONCE,
    Factor,
    Product,
    key,
    negated,
    product_of,
    sum_of,
    sum_term,
    term_of,
    total,
)
from fusegen.term import Apply, Number, Term, call


def difference_of_relus(term: Term) -> Term | None:
    """relu(a) - relu(a - d) of a d above 0: 0, then a, then d; slopes at the kinks as before."""
    if not (isinstance(term, Apply) and term.op in ("add", "sub")):
        return None
    parts = sum_of(term)
    for i, first in enumerate(parts):
        for j, second in enumerate(parts):
            a, b = _relu(first), _relu(second)
            if i == j or a is None or b is None:
                continue
            apart = total(a[0], negated(b[0]))
            common = first.without(a[1])
            if not isinstance(apart, Number) or apart.value <= 0:
                continue
            if key(term_of(common)) != key(term_of(second.without(b[1]).scaled(-ONCE))):
                continue
            bent = call("where", call("gt", a[0], apart), apart, call("relu", a[0]))
            rest = [part for k, part in enumerate(parts) if k not in (i, j)]
            return sum_term((common.times(product_of(bent)), *rest))
    return None


def choices_by_one_condition(term: Term) -> Term | None:
    """The sum of two choices by the same condition as one choice between sums."""
    if not (isinstance(term, Apply) and term.op in ("add", "sub")):
        return None
    parts = sum_of(term)
    chosen = [(place, *found) for place, part in enumerate(parts) if (found := _choice(part))]
    for i, (first, condition, *a) in enumerate(chosen):
        for second, other, *b in chosen[i + 1 :]:
            if condition == other:
                sides = (sum_term((x, y)) for x, y in zip(a, b, strict=True))
                rest = [part for k, part in enumerate(parts) if k not in (first, second)]
                return sum_term((product_of(call("where", condition, *sides)), *rest))
    return None


def _choice(product: Product) -> tuple[Term, Product, Product] | None:
    """The condition of the choice in a product, and the product with either side."""
    for place, factor in enumerate(product.factors):
        match factor:
            case Factor(Apply("where", (condition, a, b)), Fraction(numerator=1, denominator=1)):
                rest = product.without(place)
                return condition, rest.times(product_of(a)), rest.times(product_of(b))
    return None


def _relu(product: Product) -> tuple[Term, int] | None:
    """The argument of the relu in a product, and its place."""
    for place, factor in enumerate(product.factors):
        match factor:
            case Factor(Apply("relu", (a,)), Fraction(numerator=1, denominator=1)):
                return a, place
    return None


def sign_in_front(term: Term) -> Term | None:
    """An odd function of a negative multiple as minus that of the positive one."""
    match term:
        case Apply("tanh" | "erf" | "sin" as op, (a,)):
            product = product_of(a)
            if product.coefficient < 0 and product.factors:
                return negated(call(op, term_of(product.scaled(-ONCE))))
    return None
