"""Taylor polynomials of sums that cancel next to 0, and differences of roots as quotients."""

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from mpmath import mp
from test_stable_rows import same, term

from fusegen.algebra.simplify.expansions import near_0
from fusegen.algebra.simplify.monomials import key
from fusegen.algebra.simplify.roots import difference_of_roots
from fusegen.core.term import Apply, Name, Number, Term, substitute

ROOTS = {  # of differences of roots, whose numbers and signs differ
    "sqrt(x * x + 1) - sqrt(x * x)": "1 / (sqrt(x * x + 1) + sqrt(x * x))",
    "(sqrt(x * x + 1) - 1) / 2 + x": "x * (x / (sqrt(x * x + 1) + 1)) / 2 + x",
    "2 - sqrt(4 + exp(x))": "-exp(x) / (2 + sqrt(4 + exp(x)))",
    "y / sqrt(exp(x) + 1) - y / sqrt(exp(x))": (
        "-y / ((sqrt(exp(x) + 1) + sqrt(exp(x))) * sqrt(exp(x) + 1) * sqrt(exp(x)))"
    ),
}


@pytest.mark.parametrize("formula", ROOTS)
def test_a_difference_of_roots_is_a_quotient(formula: str) -> None:
    before = term(formula)
    after = difference_of_roots(before)
    assert after is not None
    y: dict[str, Term] = {"y": Number(Fraction(5, 4))}
    same(substitute(before, y), substitute(term(ROOTS[formula]), y))
    same(substitute(before, y), substitute(after, y))


@pytest.mark.parametrize("formula", ["sqrt(1 + x) + 1", "sqrt(x) - sqrt(y)", "y * sqrt(1 + x) - 1"])
def test_other_sums_of_roots_stay(formula: str) -> None:
    assert difference_of_roots(term(formula)) is None


SERIES: dict[str, Callable[[Any], Any]] = {  # sums that cancel next to 0, and their values there
    "x - sin(x)": lambda x: x - mp.sin(x),
    "(exp(x) - 1) / x - 1": lambda x: (mp.exp(x) - 1) / x - 1,
    "cos(x) / x - sin(x) / x**2": lambda x: mp.cos(x) / x - mp.sin(x) / x**2,
    "tanh(x) - x": lambda x: mp.tanh(x) - x,
    "log(1 + x) - x": lambda x: mp.log1p(x) - x,
    "sqrt(1 + x) - 1 - x / 2": lambda x: mp.sqrt(1 + x) - 1 - x / 2,
    "softplus(x) - log(2) - x / 2": lambda x: mp.log((1 + mp.exp(x)) / 2) - x / 2,
    "erf(x) - 2 / sqrt(pi) * x": lambda x: mp.erf(x) - 2 / mp.sqrt(mp.pi) * x,
    "1 / sqrt(1 - x * x) - 1": lambda x: 1 / mp.sqrt(1 - x * x) - 1,
    "sigmoid(x) - 1 / 2": lambda x: 1 / (1 + mp.exp(-x)) - mp.mpf(1) / 2,
    "exp(-x * x) - 1 + x * x": lambda x: mp.exp(-x * x) - 1 + x * x,
}


@pytest.mark.parametrize("formula", SERIES)
def test_a_polynomial_is_the_sum_that_cancels(formula: str) -> None:
    before = term(formula)
    forms = list(near_0(before))
    assert forms
    for found in forms:
        match found:
            case Apply("where", (Apply("lt", (_, Number(radius))), polynomial, plain)):
                assert key(plain) == key(before)
                holds(polynomial, radius, SERIES[formula])
            case _:
                raise AssertionError(found)


def holds(polynomial: Term, radius: Fraction, exact: Callable[[Any], Any]) -> None:
    """Compare a polynomial with the exact values up to its radius."""
    with mp.workdps(300):
        for share in (1e-30, 0.01, 0.5, 0.999):
            for sign in (1, -1):
                x = sign * share * float(radius)
                got = exactly(polynomial, Fraction(x))
                wanted = exact(mp.mpf(x))
                assert abs(mp.mpf(got.numerator) / got.denominator / wanted - 1) < 2.0**-58, x


def exactly(polynomial: Term, x: Fraction) -> Fraction:
    """The value of a polynomial in exact arithmetic."""
    match polynomial:
        case Number(value):
            return value
        case Name():
            return x
        case Apply(op, args):
            return EXACT[op](*(exactly(arg, x) for arg in args))
    raise TypeError(polynomial)


EXACT: dict[str, Callable[..., Fraction]] = {
    **{"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv},
    **{"neg": operator.neg, "square": lambda a: a * a, "cube": lambda a: a**3, "pow": operator.pow},
}


@pytest.mark.parametrize(
    "formula", ["exp(x) + x", "x - cos(x)", "log(x) - x", "sqrt(x) - x", "x - sin(y)", "x**3 - x"]
)
def test_a_sum_that_does_not_cancel_at_0_has_no_polynomial(formula: str) -> None:
    assert not list(near_0(term(formula)))
