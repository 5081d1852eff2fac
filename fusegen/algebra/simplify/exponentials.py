"""Sums of exponentials, as the forms of logarithms and quotients read them."""

from dataclasses import dataclass
from fractions import Fraction

from fusegen.algebra.simplify.monomials import multiple, product_of, sum_of, term_of, total
from fusegen.algebra.simplify.patterns import constant
from fusegen.core.term import Apply, Number, Term, call, names


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
