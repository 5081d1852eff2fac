"""Stable forms of quotients by sums of exponentials."""

from dataclasses import replace
from fractions import Fraction
from functools import reduce

from fusegen.algebra.simplify.exponentials import Exponential, direction, two_exponentials
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
    term_of,
    total,
)
from fusegen.core.term import Apply, Number, Term, call, names


def quotient_of_sums(term: Term) -> Term | None:
    """N / (p e^u + q e^v): tanh where N is the difference; else N e^-v' sigmoid(v' - u')."""
    if not (isinstance(term, Apply) and term.op in ("mul", "div", "reciprocal")):
        return None
    product = product_of(term)
    for place, factor in enumerate(product.factors):
        pair = (
            two_exponentials(factor.base) if factor.power <= -1 and factor.power.denominator == 1 else None
        )
        if pair is None or min(each.coefficient for each in pair) <= 0:
            continue
        u, v = (each.logarithm for each in pair)
        once = replace(factor, power=factor.power + 1)
        rest = product.without(place)
        if once.power:
            rest = Product(rest.coefficient, (*rest.factors, once))
        apart = total(u, negated(v))
        for top, above in enumerate(rest.factors):
            sign = _opposed(above, pair)
            if sign is not None:
                tanh = call("tanh", multiple(HALF, apart))
                return term_of(rest.without(top).times(product_of(tanh)).scaled(sign))
        instead = call("sigmoid", negated(apart))
        if key(v) != key(Number(Fraction(0))):
            instead = call("exp", negated(v)) * instead
        return term_of(rest.times(product_of(instead)))
    return None


def quotient_by_growth(term: Term) -> Term | None:
    """N / (d + q e^u), divided through by e^u where u is above 0: N e^-u / (d e^-u + q)."""
    if not (isinstance(term, Apply) and term.op in ("mul", "div", "reciprocal")):
        return None
    product = product_of(term)
    for place, factor in enumerate(product.factors):
        parts = sum_of(factor.base)
        exponents = [exponent for part in parts if (exponent := _exponent(part)) is not None]
        if factor.power >= 0 or len(parts) < 2 or not exponents:
            continue
        u = exponents[0]
        shrunk = product_of(call("exp", negated(u)))
        below = sum_term(_divided(part, u) for part in parts)
        power = Product(ONCE, (Factor(below, factor.power),))
        above = [shrunk] * int(-factor.power) if factor.power.denominator == 1 else None
        if above is not None:
            whole = reduce(Product.times, above, product.without(place)).times(power)
            return call("where", call("gt", direction(u), 0), term_of(whole), term)
    return None


def _exponent(product: Product) -> Term | None:
    """Return the u of q e^u, where u has names; q may have them, too."""
    place = _exponential(product)
    return None if place is None else _argument(product.factors[place])


def _exponential(product: Product) -> int | None:
    """Return the place of the one exponential in a product, if its argument has names."""
    found = [k for k, f in enumerate(product.factors) if isinstance(f.base, Apply) and f.base.op == "exp"]
    return found[0] if len(found) == 1 and names(product.factors[found[0]].base) else None


def _argument(factor: Factor) -> Term:
    assert isinstance(factor.base, Apply)
    return multiple(factor.power, factor.base.args[0])


def _divided(product: Product, u: Term) -> Product:
    """Return a product divided by e^u."""
    own = _exponent(product)
    if own is not None:
        left = total(own, negated(u))
        place = _exponential(product)
        assert place is not None
        return product.without(place).times(product_of(call("exp", left) if names(left) else ONE))
    return product.times(product_of(call("exp", negated(u))))


def _opposed(factor: Factor, pair: tuple[Exponential, Exponential]) -> Fraction | None:
    """Return the ratio of a factor to p e^u - q e^v, if it is a multiple of that."""
    above = two_exponentials(factor.base) if factor.power == 1 else None
    if above is None or any(key(a.exponent) != key(b.exponent) for a, b in zip(above, pair, strict=True)):
        return None
    first, second = (a.coefficient / b.coefficient for a, b in zip(above, pair, strict=True))
    return first if first == -second else None


def tanh_of_softplus(term: Term) -> Term | None:
    """((1 + e^u)^2 - 1) / ((1 + e^u)^2 + 1), squares multiplied out or not, as tanh(softplus(u))."""
    if not (isinstance(term, Apply) and term.op in ("mul", "div")):
        return None
    product = product_of(term)
    for below, divisor in enumerate(product.factors):
        parts = _in_powers(divisor.base) if divisor.power == -1 else None
        if parts is None or parts[1] != {0: Fraction(2), 1: Fraction(2), 2: Fraction(1)}:
            continue
        u, _ = parts
        for above, factor in enumerate(product.factors):
            powers = _in_powers(factor.base) if factor.power == 1 else None
            if powers and key(powers[0]) == key(u) and powers[1] == {1: Fraction(2), 2: Fraction(1)}:
                rest = Product(
                    product.coefficient,
                    tuple(f for k, f in enumerate(product.factors) if k not in (above, below)),
                )
                return term_of(rest.times(product_of(call("tanh_softplus", u))))
    return None


def _in_powers(term: Term) -> tuple[Term, dict[int, Fraction]] | None:
    """Return a polynomial in one exponential: its argument, and the coefficients by their powers."""
    found: dict[int, Fraction] = {}
    argument: Term | None = None
    for product in _multiplied_out(term):
        exponent = 0
        for factor in product.factors:
            if not (isinstance(factor.base, Apply) and factor.base.op == "exp" and factor.power > 0):
                return None
            argument = argument or factor.base.args[0]
            share = product_of(factor.base.args[0]).coefficient / product_of(argument).coefficient
            if share.denominator > 1 or key(multiple(share, argument)) != key(factor.base.args[0]):
                return None
            exponent += int(share * factor.power)
        found[exponent] = found.get(exponent, Fraction(0)) + product.coefficient
    return (argument, {k: v for k, v in found.items() if v}) if argument is not None else None


def _multiplied_out(term: Term) -> list[Product]:
    """Return a sum with the squares of sums in it multiplied out."""
    found: list[Product] = []
    for product in sum_of(term):
        parts = [Product(product.coefficient)]
        for factor in product.factors:
            inner = sum_of(factor.base)
            whole = factor.power.denominator == 1 and 1 <= factor.power <= 2 and 1 < len(inner) <= 3
            for _ in range(int(factor.power) if whole else 1):
                by = inner if whole else (Product(ONCE, (factor,)),)
                parts = [a.times(b) for a in parts for b in by]
        found += parts
    return found
