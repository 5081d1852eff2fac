"""The flattened sums and products of a term, against which the rows of `stable` are matched.

A term keeps its author's grouping. Here it is seen as a sum of products of powers, so that
``0.5 + erf(u) / 2`` and ``(erf(u) + 1) * 0.5`` are one thing. Only what a row rewrites is written back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, reduce
from operator import add

from fusegen.algebra.simplify.constants import snapped
from fusegen.core.term import KEPT, Apply, Name, Number, Term, call

ONE, ZERO = Number(Fraction(1)), Number(Fraction(0))
HALF, ONCE = Fraction(1, 2), Fraction(1)  # coefficients and powers
POWERS = {"square": Fraction(2), "cube": Fraction(3), "reciprocal": Fraction(-1), "sqrt": Fraction(1, 2),
          "rsqrt": Fraction(-1, 2)}  # fmt: skip
WHOLE = {2: "square", 3: "cube"}  # powers that are an operation

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Factor:
    """A power of a base, which is neither a product nor a number."""

    base: Term
    power: Fraction


@dataclass(frozen=True, slots=True)
class Product:
    """A coefficient times powers of different bases, in the order of the author."""

    coefficient: Fraction
    factors: tuple[Factor, ...] = ()

    def times(self, other: Product) -> Product:
        """Return the product of both; equal bases become one power, which goes where it is 0."""
        factors = list(self.factors)
        for factor in other.factors:
            place = next((k for k, own in enumerate(factors) if key(own.base) == key(factor.base)), None)
            if place is None:
                factors.append(factor)
            else:
                factors[place] = replace(factors[place], power=factors[place].power + factor.power)
        kept = tuple(factor for factor in factors if factor.power)
        return Product(snapped(self.coefficient * other.coefficient), kept)

    def scaled(self, by: Fraction) -> Product:
        """Return a number times this."""
        return replace(self, coefficient=snapped(self.coefficient * by))

    def without(self, place: int) -> Product:
        """Return all but the factor at a place."""
        return replace(self, factors=self.factors[:place] + self.factors[place + 1 :])

    def inverse(self) -> Product:
        """Return one over this."""
        factors = tuple(replace(factor, power=-factor.power) for factor in self.factors)
        return Product(1 / self.coefficient, factors)


@lru_cache(maxsize=KEPT)
def product_of(term: Term) -> Product:
    """Return a term as a product of powers."""
    match term:
        case Number(value):
            return Product(value)
        case Apply("neg", (a,)):
            return product_of(a).scaled(Fraction(-1))
        case Apply("mul", (a, b)):
            return product_of(a).times(product_of(b))
        case Apply("div", (a, b)) if (by := product_of(b)).coefficient:
            return product_of(a).times(by.inverse())
        case Apply("square" | "cube" | "reciprocal" as op, (a,)):
            return _power(product_of(a), POWERS[op], term)
        case Apply("pow", (a, Number(value))) if value.denominator == 1 and abs(value) <= 16:
            return _power(product_of(a), value, term)
        case Apply("sqrt" | "rsqrt" as op, (Apply("add" | "sub") as a,)):
            return Product(Fraction(1), (Factor(a, POWERS[op]),))
    return Product(Fraction(1), (Factor(term, Fraction(1)),))


def _power(base: Product, power: Fraction, term: Term) -> Product:
    """Return a power of a product; of a product that has roots in it, or is 0, the term as it is."""
    if not base.coefficient or any(factor.power.denominator > 1 for factor in base.factors):
        return Product(Fraction(1), (Factor(term, Fraction(1)),))
    factors = tuple(Factor(factor.base, factor.power * power) for factor in base.factors)
    return Product(base.coefficient**power.numerator, factors)


@lru_cache(maxsize=KEPT)
def sum_of(term: Term) -> tuple[Product, ...]:
    """Return a term as a sum of products; a number times a sum is the sum of its products."""
    match term:
        case Apply("add", (a, b)):
            return (*sum_of(a), *sum_of(b))
        case Apply("sub", (a, b)):
            return (*sum_of(a), *(part.scaled(Fraction(-1)) for part in sum_of(b)))
    product = product_of(term)
    match product.factors:
        case (Factor(Apply("add" | "sub") as inner, Fraction(numerator=1, denominator=1)),):
            return tuple(part.scaled(product.coefficient) for part in sum_of(inner))
    return (product,)


def summands(term: Term) -> tuple[Product, ...]:
    """Return the products of a term that is a sum; none of another one."""
    return sum_of(term) if isinstance(term, Apply) and term.op in ("add", "sub") else ()


def term_of(product: Product) -> Term:
    """Return a product as a term: factors in their order, the coefficient last, then what divides."""
    above = [_powered(f.base, f.power) for f in product.factors if f.power > 0]
    roots = [f.base for f in product.factors if f.power < -1 and f.power.denominator == 2]
    above += [call("rsqrt", base) for base in roots]  # before the power of a whole number can overflow
    below = [
        _powered(f.base, -f.power - (Fraction(1, 2) if f.base in roots else 0))
        for f in product.factors
        if f.power < 0
    ]
    size = abs(product.coefficient)
    if size != 1 and (above or below):
        above = [*above, Number(size)]
    whole: Term = reduce(lambda a, b: call("mul", a, b), above) if above else Number(size)
    if below:
        whole = call("div", whole, reduce(lambda a, b: call("mul", a, b), below))
    return whole if product.coefficient >= 0 else negated(whole)


def _powered(base: Term, power: Fraction) -> Term:
    """Return a positive power of a base, by the operations there are for it."""
    whole, half = divmod(power, 1)
    parts: list[Term] = [base] if whole == 1 else []
    if whole > 1:
        parts.append(call(WHOLE[whole], base) if whole in WHOLE else call("pow", base, int(whole)))
    if half:
        parts.append(call("sqrt", base))
    return reduce(lambda a, b: call("mul", a, b), parts)


def sum_term(products: Iterable[Product]) -> Term:
    """Return a sum of products as a term; what is subtracted follows what is added."""
    terms = [term_of(product) for product in gathered(products)]
    if not terms:
        return ZERO
    terms.sort(key=lambda term: isinstance(term, Apply) and term.op == "neg")
    whole = terms[0]
    for term in terms[1:]:
        match term:
            case Apply("neg", (positive,)):
                whole = call("sub", whole, positive)
            case Number(value) if value < 0:
                whole = call("sub", whole, Number(-value))
            case _:
                whole = call("add", whole, term)
    return whole


def gathered(products: Iterable[Product]) -> list[Product]:
    """Return a sum with equal products added up, those that vanish left out."""
    found: dict[Key, Product] = {}
    for product in products:
        place = _factors_key(product)
        known = found.get(place)
        total = product.coefficient + (known.coefficient if known else 0)
        found[place] = replace(known or product, coefficient=snapped(total))
    return [product for product in found.values() if product.coefficient]


def negated(term: Term) -> Term:
    """Return the negative of a term."""
    match term:
        case Number(value):
            return Number(-value)
        case Apply("neg", (a,)):
            return a
        case Apply("sub", (a, b)):
            return call("sub", b, a)
    return call("neg", term)


def multiple(by: Fraction, term: Term) -> Term:
    """Return a number times a term; a sum keeps its terms, but that -1 goes into them."""
    if by in (1, -1):
        return sum_term(part.scaled(by) for part in sum_of(term))
    return term_of(product_of(term).scaled(by)) if by else ZERO


def total(*terms: Term) -> Term:
    """Return the sum of some terms, equal products added up."""
    return sum_term(product for term in terms for product in sum_of(term))


@lru_cache(maxsize=KEPT)
def key(term: Term) -> Key:
    """Return the common key of two terms that differ in order and grouping alone."""
    parts = gathered_keys(sum_of(term))
    return ("sum", *parts)


def gathered_keys(products: Sequence[Product]) -> list[tuple[Key, Fraction]]:
    """Return the products of a sum by their keys, in one order."""
    found: dict[Key, Fraction] = {}
    for product in products:
        place = _factors_key(product)
        found[place] = snapped(found.get(place, Fraction(0)) + product.coefficient)
    return sorted(((k, v) for k, v in found.items() if v), key=repr)


def _factors_key(product: Product) -> Key:
    """The key of a product without its coefficient; exponentials are one, of the sum of their arguments."""
    exponents: list[Term] = []
    others: list[tuple[Key, Fraction]] = []
    for factor in product.factors:
        match factor.base:
            case Apply("exp", (argument,)):
                exponents.append(multiple(factor.power, argument))
            case base:
                others.append((_atom(base), factor.power))
    if exponents and (exponent := key(reduce(add, exponents))) != ("sum",):
        others.append((("exp", exponent), Fraction(1)))
    return tuple(sorted(others, key=repr))


def _atom(base: Term) -> Key:
    match base:
        case Name(name):
            return ("name", name)
        case Apply("add" | "sub"):
            return key(base)
        case Apply(op, args):
            return (op, *map(key, args))
    raise AssertionError("a product has no number among its factors, and compose has replaced every call")
