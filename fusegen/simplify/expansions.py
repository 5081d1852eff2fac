"""Sums that cancel next to 0, as their Taylor polynomials there: x - sin(x), (exp(x) - 1 - x) / x²."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from math import gcd

from fusegen.reals.series import FUNCTIONS, expansion
from fusegen.simplify.monomials import (
    ONCE,
    Factor,
    Key,
    Product,
    key,
    product_of,
    snapped,
    sum_of,
    sum_term,
    term_of,
)
from fusegen.term import Apply, Name, Number, Term, call, names, walk

RADII = (Fraction(1), Fraction(1, 2), Fraction(1, 4), Fraction(1, 8))
LARGEST = 64  # operations and operands of a sum that is expanded
MOST = 22  # coefficients of a polynomial
SERIES = (*FUNCTIONS, "sqrt", "rsqrt")  # of sums with these
LEFT_OUT = Fraction(1, 2**62)  # what a polynomial leaves out, relative to its first coefficient


def expansion_at_0(term: Term) -> Term | None:
    """Rewrite summands that cancel where a name is next to 0 as their Taylor polynomial there."""
    if not (isinstance(term, Apply) and term.op in ("add", "sub")):
        return None
    parts = sum_of(term)
    for name in dict.fromkeys(names(term)):
        for common, group in _groups(parts, name):
            own = sum_term(Product(part.coefficient, tuple(_in(part, name))) for part in group)
            found = _polynomial(own, name)
            if found is None:
                continue
            radius, polynomial = found
            chosen = call("where", call("lt", call("abs", Name(name)), radius), polynomial, own)
            rest = (part for part in parts if part not in group)
            return sum_term((common.times(product_of(chosen)), *rest))
    return None


def _in(product: Product, name: str) -> Iterator[Factor]:
    return (factor for factor in product.factors if name in names(factor.base))


def _groups(parts: tuple[Product, ...], name: str) -> list[tuple[Product, list[Product]]]:
    """Group the summands that are a common factor times functions of one name alone."""
    found: dict[Key, tuple[Product, list[Product]]] = {}
    for part in parts:
        if all(set(names(factor.base)) == {name} for factor in _in(part, name)):
            common = Product(ONCE, tuple(f for f in part.factors if name not in names(f.base)))
            found.setdefault(key(term_of(common)), (common, []))[1].append(part)
    return [group for group in found.values() if len(group[1]) > 1]


@lru_cache(maxsize=1024)
def _polynomial(term: Term, name: str) -> tuple[Fraction, Term] | None:
    """Return where a sum is its Taylor polynomial, and that; None where nothing cancels at 0."""
    if sum(1 for _ in walk(term)) > LARGEST:
        return None
    found = expansion([term_of(part) for part in sum_of(term)], name)
    if found is None or not found.cancels:
        return None
    used = [k for k, c in enumerate(found.c) if c]
    step = gcd(*used) or 1
    for radius in RADII:
        sizes = [abs(found.c[k]) * radius**k for k in used]
        count = next((n for n in range(1, len(used)) if sum(sizes[n:]) <= LEFT_OUT * sizes[0]), MOST + 1)
        # what follows the known coefficients is as small if the last ones are nothing
        if count <= MOST and sum(sizes[-3:]) <= LEFT_OUT * sizes[0] / 2**20:
            kept = [snapped(found.c[k]) for k in range(0, used[count - 1] + 1, step)]
            return radius, _horner(found.low, kept, step, name)
    return None


def _horner(low: int, c: list[Fraction], step: int, name: str) -> Term:
    """Return x^low (c[0] + c[1] x^step + c[2] x^(2 step) + ...)."""
    x = Name(name)
    by = term_of(Product(ONCE, (Factor(x, Fraction(step)),)))
    whole: Term = Number(c[-1])
    for each in reversed(c[:-1]):
        whole = by * whole
        if each:
            whole = whole + each if each > 0 else whole - -each
    power = Product(ONCE, (Factor(x, Fraction(low)),) if low else ())
    return term_of(power.times(product_of(whole)))
