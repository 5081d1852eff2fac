"""Stable forms of sums whose terms share factors: over a common denominator, and by their conjugate."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from math import floor

from fusegen.algebra.simplify.monomials import (
    ONCE,
    Factor,
    Key,
    Product,
    gathered,
    key,
    product_of,
    sum_of,
    sum_term,
    summands,
    term_of,
)
from fusegen.algebra.simplify.rules import Rule, proved
from fusegen.core.term import KEPT, Apply, Name, Number, Term, call, names

MOST_PRODUCTS = 32  # of a sum that is multiplied out
MOST_POWER = 4  # of a sum that is multiplied out
# fmt: off
NOT_NEGATIVE = ("abs", "sqrt", "scaled_hypot", "exp", "exp2", "sigmoid", "softplus", "ndtr",
                "gauss", "normal", "erfc",
                "sigmoid_slope", "tanh_slope", "relu", "relu6", "square")
# fmt: on

_A, _B, _C = (Name(name) for name in "abc")
CONJUGATE = Rule("conjugate", _A + _B, (call("square", _A) - call("square", _B)) / (_A - _B))
COMMON = Rule("common factor", _C * _A + _C * _B, _C * (_A + _B))
Sum = list[Product]


def over_common_factor(term: Term) -> Term | None:
    """Return a sum as the factor that all its products share times the rest, which is multiplied out."""
    found = factored(term)
    if found is None:
        return None
    common, rest = found
    if not common.factors and len(rest) >= len(sum_of(term)):
        return None
    after = term_of(common.times(product_of(sum_term(rest))))
    return None if key(after) == key(term) and after == term else after


@lru_cache(maxsize=KEPT)
def factored(term: Term) -> tuple[Product, Sum] | None:
    """Return the common factor of a sum's products, and what is left of them, multiplied out."""
    parts = gathered(summands(term))
    if not 1 < len(parts) <= MOST_PRODUCTS or not proved(COMMON):
        return None
    bases: dict[Key, Term] = {key(f.base): f.base for part in parts for f in part.factors}
    least = {
        k: min(next((f.power for f in part.factors if key(f.base) == k), Fraction(0)) for part in parts)
        for k in bases
    }
    common = Product(ONCE, tuple(Factor(bases[k], power) for k, power in least.items() if power))
    rest = multiplied_out([part.times(common.inverse()) for part in parts])
    return None if rest is None else (common, _without_signs(rest))


def _without_signs(rest: Sum) -> Sum:
    """Return a sum with `x sign(x)` as `|x|` where one product is left, as p of `p + |x| - x sign(x)`.

    A sum of several products keeps its signs: at infinity they may cancel, and moduli do not.
    """
    found = gathered(map(_with_modulus, rest))
    return found if len(found) == 1 < len(rest) else rest


def _with_modulus(product: Product) -> Product:
    """Return a product with the sign and one power of a base as its modulus."""
    for place, factor in enumerate(product.factors):
        match factor:
            case Factor(Apply("sign", (base,)), Fraction(numerator=1, denominator=1)):
                modulus = Product(ONCE, (Factor(call("abs", base), ONCE), Factor(base, -ONCE)))
                return product.without(place).times(modulus)
    return product


def multiplied_out(products: Sequence[Product]) -> Sum | None:
    """A sum with whole powers of the sums in its products multiplied out; None where it grows too long."""
    found: Sum = []
    for product in products:
        parts = [Product(product.coefficient)]
        for by in _multiplicands(product):
            parts = gathered(a.times(b) for a in parts for b in by)
            if len(parts) > MOST_PRODUCTS:
                return None
        found += parts
    return gathered(found)


def _multiplicands(product: Product) -> Iterator[Sequence[Product]]:
    """The factors of a product, each as a sum; roots to an even power are what they are the root of."""
    for factor in product.factors:
        whole = floor(factor.power) if factor.power <= 2 * MOST_POWER else 0
        match factor.base:
            case Apply("scaled_hypot", (a, b)) if whole >= 2:
                squares = (product_of(call("square", a)), product_of(call("square", b)))
                yield from [squares] * (whole // 2)
                whole = whole // 2 * 2
            case Apply("abs", (a,)) if whole >= 2:
                yield from [(product_of(call("square", a)),)] * (whole // 2)
                whole = whole // 2 * 2
            case Apply("sqrt", (a,)) if whole >= 2:
                yield from [sum_of(a)] * (whole // 2)
                whole = whole // 2 * 2
            case Apply("add" | "sub") as inner if 1 <= whole <= MOST_POWER:
                yield from [sum_of(inner)] * whole
            case _:
                whole = 0
        if left := factor.power - whole:
            yield (Product(ONCE, (Factor(factor.base, left),)),)


def conjugate(term: Term) -> Term | None:
    """Return p + q, one a root, as (p² - q²) / (p - q) where they differ in sign and that is shorter."""
    found = factored(term)
    if found is None or not proved(CONJUGATE):
        return None
    common, parts = found
    for i, p in enumerate(parts):
        if not any(
            f.power.denominator == 2
            or (isinstance(f.base, Apply) and f.base.op in ("sqrt", "scaled_hypot"))
            for f in p.factors
        ):
            continue
        for j, q in enumerate(parts):
            if i == j or (sum_ := _by_conjugate(p, q)) is None:
                continue
            rest = [part for k, part in enumerate(parts) if k not in (i, j)]
            return term_of(common.times(product_of(sum_term([product_of(sum_), *rest]))))
    return None


def _by_conjugate(p: Product, q: Product) -> Term | None:
    """Return the sum of a root and a product by their conjugate, if p² - q² is one product."""
    if p.coefficient < 0:
        negative = _by_conjugate(p.scaled(-ONCE), q.scaled(-ONCE))
        return None if negative is None else call("neg", negative)
    if not is_not_negative(p) or (is_not_negative(q) and q.coefficient > 0):
        return None
    squares = multiplied_out([_squared(p), _squared(q).scaled(-ONCE)])
    if squares is None or len(squares) > 1:
        return None
    direct = sum_term((p, q))
    if not squares:
        return None
    quotient = _quotient(squares[0], sum_term((p, q.scaled(-ONCE))))
    if is_not_negative(q):
        never_0 = not squares[0].factors or not q.factors
        return quotient if never_0 else call("where", call("gt", term_of(p), 0), quotient, term_of(q))
    return call("where", call("ge", term_of(q), 0), direct, quotient)


def _squared(product: Product) -> Product:
    return product.times(product)


def _quotient(product: Product, by: Term) -> Term:
    """Return a product over a sum; of a square one factor is divided, since the square may overflow."""
    for k, factor in enumerate(product.factors):
        if factor.power == 2:
            rest = product.without(k).times(Product(ONCE, (Factor(factor.base, ONCE),)))
            return term_of(rest) * (factor.base / by)
    return term_of(product) / by


def is_not_negative(product: Product) -> bool:
    """Return True if the factors of a product, but for its coefficient, are never negative."""
    return all(
        factor.power.denominator == 2
        or factor.power % 2 == 0
        or (isinstance(factor.base, Apply) and factor.base.op in NOT_NEGATIVE)
        or (isinstance(factor.base, Number) and factor.base.value >= 0)
        for factor in product.factors
    )


def moves(term: Term) -> frozenset[str]:
    """Return the names that decide a term."""
    return frozenset(names(term))
