"""Stable forms of roots: differences, next to their argument, and far out."""

from fractions import Fraction
from itertools import permutations

from fusegen.algebra.simplify.monomials import (
    HALF,
    ONCE,
    ONE,
    Factor,
    Product,
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
from fusegen.algebra.simplify.patterns import constant
from fusegen.core.term import Apply, Number, Term, call, names


def _square_and_more(base: Term) -> list[tuple[Term, Term, Fraction]]:
    """Return the ways in which a sum is k a^2 + c, of a positive k: the a, c and k."""
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
    parts = summands(term)
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


def root_and_argument(term: Term) -> tuple[Term, Number] | None:
    """Find the a and c of sqrt(a^2 + c) + a, of a positive number c."""
    parts = sum_of(term)
    for root, linear in permutations(parts) if len(parts) == 2 else ():
        match root:
            case Product(Fraction(numerator=1, denominator=1), (Factor(base, power),)) if power == HALF:
                own = key(term_of(linear))
                for a, c, by in _square_and_more(base):
                    found = next(
                        (each for each in (a, negated(a), call("abs", a)) if key(each) == own), None
                    )
                    if found is not None and by == 1 and isinstance(c, Number) and c.value > 0:
                        return found, c
    return None


def difference_of_roots(term: Term) -> Term | None:
    """Rewrite sqrt(p) - sqrt(q) as (p - q) / (sqrt(p) + sqrt(q)) where p - q is short.

    A number is a root, too. 1 / sqrt(p) - 1 / sqrt(q) is (q - p) / ((sqrt(p) + sqrt(q)) sqrt(p) sqrt(q)).
    """
    parts = summands(term)
    roots = [(k, *found) for k, part in enumerate(parts) if (found := _root(part))]
    for (i, p, power, common), (j, q, other, beside) in permutations(roots, 2):
        if not names(p) or (names(q) and power != other) or not _opposed(common, beside):
            continue
        q = multiple((beside.coefficient / common.coefficient) ** int(4 * power), q)
        apart = total(p, negated(q)) if power > 0 else total(q, negated(p))
        if len(sum_of(apart)) < len(sum_of(p)) + len(sum_of(q)):
            rest = [part for k, part in enumerate(parts) if k not in (i, j)]
            return sum_term((common.times(product_of(_conjugate(p, q, apart, power))), *rest))
    return None


def _conjugate(p: Term, q: Term, apart: Term, power: Fraction) -> Term:
    """Return the quotient that a difference of roots is; a / below * a does not overflow as a^2 does."""
    first, second = (_square_root(radicand) for radicand in (p, q))
    below = first + second
    if power < 0:
        below = below * first * second
    match product_of(apart):
        case Product(by, (Factor(a, Fraction(numerator=2, denominator=1)),)) if power > 0:
            return a * (multiple(by, a) / below)
    return apart / below


def _square_root(radicand: Term) -> Term:
    """Return the root of a radicand, in a form whose square does not overflow."""
    if isinstance(radicand, Number):
        return constant(call("sqrt", radicand))
    root = call("sqrt", radicand)
    return far_root(root) or root


def _root(product: Product) -> tuple[Term, Fraction, Product] | None:
    """Find the radicand of the only root in a product, its power 1/2 or -1/2, and the other factors."""
    found = []
    for place, factor in enumerate(product.factors):
        match factor:
            case Factor(Apply("sqrt", (radicand,)), power) if abs(power) == 1:
                found.append((radicand, power * HALF, product.without(place)))
            case Factor(Apply("add" | "sub") as radicand, power) if abs(power) == HALF:
                found.append((radicand, power, product.without(place)))
    return found[0] if len(found) == 1 else (ONE, HALF, product) if not found else None


def _opposed(first: Product, second: Product) -> bool:
    """Tell whether two products are a positive and a negative multiple of the same."""
    a, b = first.coefficient, second.coefficient
    return a * b < 0 and key(term_of(first.scaled(1 / a))) == key(term_of(second.scaled(1 / b)))


def square_less_number(term: Term) -> Term | None:
    """Rewrite k a^2 - n as k (a - b) (a + b), where n / k is the square of a fraction b."""
    match sorted(summands(term), key=lambda part: len(part.factors)):
        case [Product(n, ()), Product(k, (Factor(a, Fraction(numerator=2, denominator=1)),))] if n * k < 0:
            b = constant(call("sqrt", Number(-n / k)))
            if isinstance(b, Number) and b.value * b.value == -n / k:
                return term_of(Product(k).times(product_of((a - b) * (a + b))))
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
