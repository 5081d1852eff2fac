"""Sums of exponentials, as the forms of logarithms and quotients read them."""

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from fusegen.algebra.simplify.constants import SHORT, snapped
from fusegen.algebra.simplify.monomials import Factor, Product, multiple, product_of, sum_of, term_of, total
from fusegen.algebra.simplify.patterns import constant
from fusegen.core.term import Apply, Number, Term, call, names

ROOT_TAU = constant(call("sqrt", 2 * call("pi")))


@dataclass(frozen=True, slots=True)
class Exponential:
    """A coefficient times e^exponent."""

    coefficient: Fraction
    exponent: Term

    @property
    def logarithm(self) -> Term:
        """The exponent that this has without a coefficient, which is positive."""
        return total(self.exponent, constant(call("log", Number(self.coefficient))))


def exponentials(term: Term) -> list[Exponential] | None:
    """A sum of multiples of exponentials, of which at least one is none of 0; None for another sum."""
    products = sum_of(term)
    if len(products) < 2:
        return None
    found = []
    for product in products:
        exponent: list[Term] = []
        for factor in product.factors:
            if not (isinstance(factor.base, Apply) and factor.base.op == "exp"):
                return None
            exponent.append(multiple(factor.power, factor.base.args[0]))
        found.append(Exponential(product.coefficient, total(*exponent)))
    return found if any(names(each.exponent) for each in found) else None


def two_exponentials(term: Term) -> tuple[Exponential, Exponential] | None:
    """Return a sum of two exponentials, the second no further from 0 where it is a number."""
    found = exponentials(term)
    if found is None or len(found) != 2:
        return None
    first, second = found
    return (second, first) if not names(first.exponent) else (first, second)


def direction(term: Term) -> Term:
    """Return the part of a term that has its sign: the term without a positive number in front."""
    product = product_of(term)
    return term_of(product.scaled(1 / abs(product.coefficient))) if product.coefficient else term


def density(term: Term) -> Term | None:
    """Return e^(-a² / 2) over the root of 2 pi as the density of the normal distribution, normal(a).

    Its slopes then cancel against those of Φ, as in the gradient of a Φ(a) + e^(-a² / 2) / √(2 π).
    """
    if not (isinstance(term, Apply) and term.op in ("mul", "div")) or not isinstance(ROOT_TAU, Number):
        return None
    product = product_of(term)
    scale = snapped(product.coefficient * ROOT_TAU.value)
    for place, factor in enumerate(product.factors if scale.denominator < SHORT else ()):
        match factor:
            case Factor(Apply("exp", (u,)), Fraction(numerator=1, denominator=1)):
                root = _root(product_of(u).scaled(Fraction(-2)))
                if root is not None:
                    rest = Product(scale, product.without(place).factors)
                    return term_of(rest.times(product_of(call("normal", term_of(root)))))
    return None


def _root(square: Product) -> Product | None:
    """Return the root of a product, if all powers in it are even and its coefficient is a square."""
    factors = tuple(Factor(each.base, each.power / 2) for each in square.factors)
    if not factors or square.coefficient < 0 or any(each.power.denominator > 1 for each in factors):
        return None
    root = Fraction(isqrt(square.coefficient.numerator), isqrt(square.coefficient.denominator))
    return Product(root, factors) if root**2 == square.coefficient else None
