"""Polynomials in place of functions that lose their digits: next to 0, and of e^(x²) erfc(x) above 1.

A polynomial leaves out less than `LEFT` of itself wherever it is used. It stays an approximation: the
search alone takes one, for what a kernel computes, and never for what a proof takes as the formula.

Source: Griewank and Walther 2008, Evaluating Derivatives, chapter 13; Shepherd and Laframboise 1981,
Chebyshev Approximation of (1 + 2x) exp(x²) erfc(x) in 0 <= x < ∞, Mathematics of Computation 36.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import gcd

from fusegen.algebra.simplify.constants import snapped
from fusegen.algebra.simplify.differences import factored, moves
from fusegen.algebra.simplify.monomials import (
    ONCE,
    Factor,
    Key,
    Product,
    key,
    product_of,
    sum_of,
    sum_term,
    term_of,
    total,
)
from fusegen.core.term import Apply, Name, Number, Term, call, names, size
from fusegen.numerics.reals.laurent_series import Expansion, expansion
from fusegen.numerics.reals.scaled_erfc import ABOVE, BESIDE, polynomial

LARGEST = 64  # operations and operands of a sum that is expanded
LARGE = 2.0**512  # a coefficient of no polynomial
RADII = (
    Fraction(2),
    Fraction(1),
    Fraction(1, 2),
    Fraction(1, 4),
    Fraction(1, 8),
)  # up to which one is used
MOST_TERMS = 20  # of a polynomial
LEFT = 2.0**-58
Group = tuple[Product, list[Product], list[Product]]


def near_0(term: Term) -> Iterator[Term]:
    """A product with a sum of one name that cancels as a polynomial next to 0, up to each of some radii.

    Of a sum with other summands it is those that are a common factor times functions of that name.
    """
    if not isinstance(term, Apply):
        return
    for name in sorted(moves(term)):
        common, rest = factored(term) or (product_of(term), [Product(ONCE)])
        whole = common.times(product_of(sum_term(rest)))
        yield from _product_near_0(term, name, whole)
        parts = sum_of(term)
        for by, group, others in _groups(parts, name) if len(parts) > 1 else ():
            if others:
                own = sum_term(group)
                for near in _product_near_0(own, name, product_of(own)):
                    yield sum_term((by.times(product_of(near)), *others))


def _groups(parts: tuple[Product, ...], name: str) -> Iterator[Group]:
    """Yield a common factor, the functions of one name alone that it multiplies, and the other summands."""
    found: dict[Key, tuple[Product, list[Product]]] = {}
    for part in parts:
        own = tuple(f for f in part.factors if name in names(f.base))
        if all(moves(factor.base) == {name} for factor in own):
            common = Product(ONCE, tuple(f for f in part.factors if name not in names(f.base)))
            found.setdefault(key(term_of(common)), (common, []))[1].append(part)
    for common, group in found.values():
        if len(group) > 1:
            rest = [part for part in parts if part not in group]
            yield common, [part.times(common.inverse()) for part in group], rest


def _product_near_0(term: Term, name: str, whole: Product) -> Iterator[Term]:
    """Yield a term that is a product as a polynomial times the factors without a name."""
    own = tuple(f for f in whole.factors if moves(f.base) == {name})
    others = tuple(f for f in whole.factors if name not in moves(f.base))
    if len(own) + len(others) < len(whole.factors) or not any(_cancels(f.base, name) for f in own):
        return
    found = _expanded(term_of(Product(ONCE, own)), name)
    if found is not None:
        yield from _polynomials(term, Name(name), found, Product(whole.coefficient, others))


@lru_cache(maxsize=1024)
def _expanded(term: Term, name: str) -> Expansion | None:
    """Return the series of the sum of a term's products; None where there is none, and of a large term."""
    small = size(term) <= LARGEST
    return expansion([term_of(part) for part in sum_of(term)], name) if small else None


def _cancels(term: Term, name: str) -> bool:
    """Return True if a sum is of higher order at 0 than its terms."""
    found = _expanded(term, name) if isinstance(term, Apply) and term.op in ("add", "sub") else None
    return found is not None and found.cancels


def _polynomials(term: Term, x: Name, found: Expansion, by: Product) -> Iterator[Term]:
    if not 0 <= found.low < 8 or max(map(abs, found.c)) > LARGE:
        return
    floats, kept = [float(c) for c in found.c], 0
    for radius in RADII:
        count = terms_needed(floats, float(radius))
        if count is None or count == kept:
            continue
        kept = count
        near = _horner([snapped(c) for c in found.c[:count]], x)
        power = Product(ONCE, (Factor(x, Fraction(found.low)),) if found.low else ())
        polynomial = term_of(by.times(power).times(product_of(near)))
        yield call("where", call("lt", call("abs", x), radius), polynomial, term)


def terms_needed(coefficients: list[float], radius: float) -> int | None:
    """The number of terms after which less than `LEFT` of the polynomial is left out up to a radius."""
    sizes = [abs(c) * radius**k for k, c in enumerate(coefficients)]
    left = list(accumulate(reversed(sizes)))[::-1]
    least = min(abs(_polynomial(coefficients, radius * k / 16)) for k in range(-16, 17))
    # what follows the known coefficients is as small if the last ones are nothing
    if max(sizes[-4:]) > LEFT / 256 * least or least < abs(coefficients[0]) / 64:
        return None
    count = next(k for k, size in enumerate([*left, 0.0]) if size <= LEFT * least)
    used = sum(1 for c in coefficients[:count] if c)
    return count if used <= MOST_TERMS else None


def _polynomial(coefficients: list[float], x: float) -> float:
    whole = 0.0
    for c in reversed(coefficients):
        whole = whole * x + c
    return whole


def _horner(coefficients: list[Fraction], x: Term) -> Term:
    """Return a polynomial; in a power of x where every coefficient between is 0."""
    step = gcd(*(k for k, c in enumerate(coefficients) if c)) or 1
    by = term_of(Product(ONCE, (Factor(x, Fraction(step)),)))
    *others, last = coefficients[::step]
    whole: Term = Number(last)
    for c in reversed(others):
        whole = by * whole
        if c:
            whole = whole + c if c > 0 else whole - -c
    return whole


def scaled_erfc(term: Term) -> Iterator[Term]:
    """Yield the product e^(a²) erfc(a) as a polynomial above 1, where its slope cancels."""
    if not (isinstance(term, Apply) and term.op in ("mul", "div", "neg")):
        return
    product = product_of(term)
    for i, first in enumerate(product.factors):
        for j, second in enumerate(product.factors):
            match first.base, second.base:
                case Apply("exp", (u,)), Apply("erfc", (a,)) if first.power == second.power == 1:
                    more = total(u, call("neg", a * a))
                    if len(sum_of(more)) >= len(sum_of(u)) and more != Number(Fraction(0)):
                        continue
                    rest = product.without(max(i, j)).without(min(i, j))
                    by = term_of(rest) if more == Number(Fraction(0)) else term_of(rest) * call("exp", more)
                    yield call("where", call("gt", a, ABOVE), by * _above_one(a), term)


def _above_one(a: Term) -> Term:
    """Return the polynomial over a + 1/2."""
    x = call("clamp_min", a, ABOVE)  # finite where it is not taken, too
    turned = 1 - (2 * (ABOVE + BESIDE)) * call("reciprocal", x + BESIDE)  # from -1 to 1
    return _horner(polynomial(), turned) * call("reciprocal", x + Number(Fraction(1, 2)))
