"""Rows of stable forms: each is proved, is the same function in ball arithmetic, and matches."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import pytest

from fusegen.algebra.simplify.choices import slope_of_times_relu6
from fusegen.algebra.simplify.constants import constants_folded
from fusegen.algebra.simplify.identities import IDENTITIES, IN_RANGE, SERIES, Row
from fusegen.algebra.simplify.monomials import key
from fusegen.algebra.simplify.patterns import constant, rewritten
from fusegen.algebra.simplify.rules import Rule, proved
from fusegen.algebra.simplify.search import LOST, improved
from fusegen.algebra.simplify.splits import SPLITS, Split
from fusegen.algebra.simplify.stable import AFTER_PARTS, ALWAYS, OPTIONAL, stable
from fusegen.algebra.simplify.written import shared, written_out
from fusegen.codegen.printers.notation import term as notation
from fusegen.core.term import Let, Name, Number, Program, Term, call, names, substitute, walk
from fusegen.errors import Span
from fusegen.evidence.certify.enclosures import Enclosure
from fusegen.language.parse.formula import parse_formula

X = Name("x")
ROWS = (*ALWAYS, *AFTER_PARTS, *OPTIONAL)
POINTS = (-40.0, -1.5, -0.5, 0.25, 1.0, 3.0, 40.0)


def term(formula: str) -> Term:
    """The term of a formula in x, y and a parameter c; constants as one number each."""
    found = parse_formula(formula, Span("formula", 1, 1, formula).after, ("x", "y", "c"))
    return constants_folded(program(found)).results[0]


def program(*results: Term, lets: tuple[Let, ...] = ()) -> Program:
    return Program(("x", "y"), ("c",), lets, results)


def same(left: Term, right: Term, points: tuple[float, ...] = POINTS) -> None:
    """Values and slopes of both are equal wherever they are defined."""
    pair = [Enclosure(Program(("x",), (), (), (side,)), {}) for side in (left, right)]
    for x in points:
        for a, b in zip(*(side(x) for side in pair), strict=True):
            if not (math.isnan(a.hi) or math.isnan(b.hi)):
                assert a.hi == pytest.approx(b.hi, rel=2**-50, abs=1e-300), x


@pytest.mark.parametrize("rule", ROWS, ids=lambda rule: f"{rule.name}: {notation(rule.left)}")
def test_a_row_is_proved_and_the_same_function(rule: Rule) -> None:
    assert proved(rule)
    given: dict[str, Term] = {"a": X, "b": X * Fraction(-3, 4), "k_": Number(Fraction(3)), "c": X + 1}
    same(substitute(rule.left, given), substitute(rule.right, given))


@pytest.mark.together
@pytest.mark.parametrize("rule", ROWS, ids=lambda rule: f"{rule.name}: {notation(rule.left)}")
def test_a_row_matches_its_own_left_side(rule: Rule) -> None:
    given: dict[str, Term] = {name: Name(name) for name in names(rule.left)}
    given["k_"] = Number(Fraction(3))
    assert rewritten(rule, constants_folded(program(substitute(rule.left, given))).results[0]) is not None


FORMS = {  # as authors write them, and what they mean
    "x * 0.5 * (1 + erf(x / sqrt(2)))": "x * ndtr(x)",
    "0.5 * (x + x * erf(x * 0.7071067811865475244008443621048490392848359376884740))": "x * ndtr(x)",
    "x / 2 + x * erf(x / sqrt(2)) / 2": "x * ndtr(x)",
    "0.5 + 0.5 * tanh(x)": "sigmoid(2 * x)",
    "tanh(x) + 1": "2 * sigmoid(2 * x)",
    "y - y * sigmoid(x)": "y * sigmoid(-x)",
    "sigmoid(x) - 1": "-sigmoid(-x)",
    "x / (1 + exp(-x))": "x * sigmoid(x)",
    "x * exp(x) / (exp(x) + 1)": "x * sigmoid(x)",
    "1 / (1 + exp(-1.702 * x)) * x": "sigmoid(1.702 * x) * x",
    "(exp(2 * x) - 1) / (exp(2 * x) + 1)": "tanh(x)",
    "(exp(x) - exp(-x)) / (exp(x) + exp(-x))": "tanh(x)",
    "2 / (1 + exp(-2 * x)) - 1": "tanh(x)",
    "1 - 2 / (exp(2 * x) + 1)": "tanh(x)",
    "log(1 + exp(x))": "softplus(x)",
    "log(exp(x) + 1) / 3": "softplus(x) / 3",
    "log(3 + exp(x)) - log(3)": "softplus(x - log(3))",
    "-log(1 + exp(-x))": "-softplus(-x)",
    "log((1 + exp(x))**1.5)": "1.5 * softplus(x)",
    "log((1 + exp(c * x)) / (1 + exp(c * (x - 1))))": "log1p(sigmoid(c * (x - 1)) * expm1(c))",
    "log(1 - sigmoid(x))": "-softplus(x)",
    "log(sigmoid(x))": "-softplus(-x)",
    "sigmoid(x) - square(sigmoid(x))": "sigmoid(x) * sigmoid(-x)",
    "relu(x) - relu(x - 6)": "where(x > 6, 6, relu(x))",
    "log(1 + 2 * x)": "log1p(2 * x)",
    "log(1 - x)": "log1p(-x)",
    "y * log(1 + x**2)": "y * log1p(square(x))",
    "log(255 * abs(x) / c + 1)": "log1p(255 * abs(x) / c)",
    "log(1 + tanh(x))": "log(2 * sigmoid(2 * x))",
    "softplus(x) - softplus(-x)": "x",
    "where(x > 0, x, exp(x) - 1) + 1": "where(x > 0, x + 1, exp(x))",
    "y - y * where(x > 0, exp(-x), 1 - x)": "y * where(x > 0, -expm1(-x), x)",
    "log(1 + where(x > 0, x, exp(x) - 1))": "where(x > 0, log1p(x), x)",
    "exp(x) * exp(-x * x)": "exp(x - x * x)",
}


@pytest.mark.together
@pytest.mark.parametrize("formula", FORMS)
def test_a_formula_is_seen_for_what_its_author_means(formula: str) -> None:
    found, taken = stable(program(term(formula)))
    wanted, _ = stable(program(term(FORMS[formula])))
    assert taken
    assert key(found.results[0]) == key(wanted.results[0]), notation(found.results[0])


def test_mish_is_seen_in_its_exponentials() -> None:
    found, _ = stable(program(term("x * ((1 + exp(x))**2 - 1) / ((1 + exp(x))**2 + 1)")))
    assert key(found.results[0]) == key(X * call("tanh_softplus", X))


SPLIT = {  # a formula that each split matches
    "sine of turns": "cos(pi * x / 7 + pi / 3)",
    "density of the normal distribution": "y * exp(-0.5 * (x / 3)**2) / (x * sqrt(2 * pi))",
    "choice within a choice": "where(x == 0, 1, sin(x) / where(x == 0, 1, x))",
    "sign in front": "tanh(-2 * x)",
    "tanh of softplus by exponentials": "((1 + exp(x))**2 - 1) / ((1 + exp(x))**2 + 1)",
    "log of a quotient of one plus exp": "log((1 + exp(x)) * sigmoid(1 - x))",
    "log of a sum of exponentials": "log(exp(x) + exp(-x))",
    "quotient by a sum of exponentials": "1 / (exp(x) + exp(-x))",
    "difference of relus": "relu(x) - relu(x - 6)",
    "even power of abs": "square(abs(x))",
    "root plus its argument": "sqrt(x**2 + 4) - x",
    "root of a large square": "sqrt(x * x + 2)",
    "log of a root plus its argument": "log(x + sqrt(x * x + 3))",
    "difference of roots": "3 * sqrt(x * x + 4) / 2 - 3",
    "square less a number": "3 * x * x - 12",
    "power minus one": "y * (1 + x**2)**y - y",
    "log of a quotient next to one": "log((41 + x) / (41 - x))",
    "difference of logarithms": "log1p(x / 41) - log(1 - x / 41)",
    "log of cosh": "x + softplus(-2 * x) - log(2)",
    "log of exp minus one": "log(expm1(x))",
    "quotient by a growing exponential": "x / (x / 5 + exp(-x / 3))",
    "choices by one condition": "where(x > 0, x, 1) + 2 * where(x > 0, 3, x)",
    "slope of a product with relu6": "relu6(x + 3) * 2 + where(x <= -3, 0, where(x >= 3, 0, 2 * x))",
}


@pytest.mark.together
@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.name)
def test_a_split_is_the_same_function(split: Split) -> None:
    before = constant(term(SPLIT[split.name]))
    after = split.apply(before)
    assert after is not None
    y: dict[str, Term] = {"y": Number(Fraction(5, 4))}
    same(substitute(before, y), substitute(after, y), (*POINTS, -2e4, 2e4))


@pytest.mark.parametrize(
    "formula",
    [
        "relu6(x + 3) * 2 + where(x <= -3, 0, where(x >= 4, 0, 2 * x))",
        "relu6(x + 3) * 2 + where(x <= -4, 0, where(x >= 3, 0, 2 * x))",
        "relu6(x + 3) * y + where(x <= -3, 0, where(x >= 3, 0, 2 * x))",
        "relu6(x + 3) * 2 + where(x <= -3, 0, where(x >= 3, 1, 2 * x))",
    ],
)
def test_other_slopes_than_of_a_product_with_relu6_stay(formula: str) -> None:
    assert slope_of_times_relu6(term(formula)) is None


def test_nothing_is_a_multiple_by_0_of_a_pattern() -> None:
    """A branch in which relu is 0 leaves a product with 0 behind."""
    row = next(row for row in ALWAYS if row.name == "x times Phi of a multiple")
    assert rewritten(row, call("mul", X, call("ndtr", call("mul", Number(Fraction(0)), X)))) is None


def test_the_cosh_in_a_logarithm_is_none_next_to_0() -> None:
    before = term("log((exp(x) + exp(-x)) / 2)")
    found, _ = stable(program(before))
    same(before, found.results[0])
    assert "expm1" in str(found.results[0])


@pytest.mark.parametrize(
    "formula", ["x + 3", "x * (x + 1)", "1 + x * tanh(x)", "relu(x) - relu(y - 6)", "exp(x) - 2"]
)
def test_what_no_row_says_stays_as_it_is_written(formula: str) -> None:
    before = program(term(formula))
    assert stable(before) == (before, ())


def test_the_search_takes_what_lowers_the_estimate_and_stops() -> None:
    before = program(term("square(x) - square(y)"))
    asked: list[Program] = []

    def score(tried: Program) -> tuple[int, int, float, int]:
        asked.append(tried)
        return (0, 0, 1.0, 0) if tried.results[0] != before.results[0] else (3, 0, 2 * LOST, 0)

    found, taken = improved(before, score)
    assert key(found.results[0]) == key(term("(x - y) * (x + y)"))
    assert [rewrite.rule for rewrite in taken] == ["difference of squares"]
    assert improved(before, lambda tried: (3, 0, 2 * LOST, 0)) == (before, ())
    assert improved(before, lambda tried: (0, 0, 1.0, 0)) == (before, ())


def test_the_search_takes_nothing_that_makes_more_results_nan_than_it_keeps() -> None:
    before = program(term("square(x) - square(y)"))
    assert improved(before, lambda tried: (1, 0, 1.0, 0) if tried == before else (0, 0, 1.0, 2)) == (
        before,
        (),
    )


@pytest.mark.parametrize(("enough", "taken"), [(3 * LOST, True), (2 * LOST, False), (5 * LOST, False)])
def test_the_search_takes_what_makes_the_error_small_enough(enough: float, taken: bool) -> None:
    before = program(term("square(x) - square(y)"))

    def score(tried: Program) -> tuple[int, int, float, int]:
        return (3, 0, 4 * LOST, 0) if tried == before else (3, 0, 3 * LOST, 0)

    assert bool(improved(before, score, lambda: enough)[1]) is taken


def test_steps_are_written_out_and_shared_again() -> None:
    u = Let("u", call("exp", X))
    whole = program(Name("u") * Name("u") + Name("u"), lets=(u,))
    flat = written_out(whole)
    assert flat is not None
    assert not flat.lets
    again = shared(flat)
    assert [let.term for let in again.lets] == [u.term]
    large = program(*[Name("u") + 1] * 300, lets=(Let("u", call("exp", X)),))
    assert written_out(large) is None


@pytest.mark.parametrize(
    "formula",
    [
        "x - sin(" + "square(" * 60 + "x" + ")" * 60 + ")",
        "exp(1e300 * x + 1e300) - exp(x)",
        "(x * y)**16 * (x + y)**16 - ((x + 1)**16)**16",
        "sqrt(1 + ((x**16)**16)**16) - (((x + y)**16)**16)**16",
    ],
)
def test_the_rows_of_the_search_are_bounded(formula: str) -> None:
    before = term(formula)
    began = time.process_time()
    for row in (*IDENTITIES, *SERIES, *IN_RANGE):
        for part in walk(before):
            assert all(found != part for found in row.forms(part))
    assert time.process_time() - began < 5


IDENTICAL = {  # a formula that a row of the search matches
    "inverse hyperbolic cosine by log1p": "log(x + sqrt(x * x - 1))",
    "conjugate": "sqrt(x * x + 1) - x",
    "common factor": "x / (x * x + 2) - x**3 / (x * x + 2)**2",
    "apart by sign": "where(x > 0, relu(x) / (1 + square(relu(x))), 0) - 2 * x**3",
    "power series next to 0": "x - sin(x)",
    "scaled erfc as a polynomial": "exp(x * x) * erfc(x)",
    "root of squares": "sqrt(4 * x * x + 9)",
    "powers of squares": "x * x / (sqrt(x * x + 2) * (x * x + 2))",
    "quotient by a square": "3 * x / (x * x + 2)",
    "log of a large square": "log(1 + 3 * x * x)",
    "power of sigmoid": "sigmoid(x)**-1.5",
    "slope of a power of sigmoid": "sigmoid(x)**-2.5 * sigmoid(x) * sigmoid(-x)",
    "root of a square": "sqrt(square(x))",
    "factors in another order": "x * exp(-x) * (x + 1)",
}


@pytest.mark.together
@pytest.mark.parametrize("row", [*IDENTITIES, *SERIES, *IN_RANGE], ids=lambda row: row.name)
def test_a_row_of_the_search_is_the_same_function(row: Row) -> None:
    if row.name in IDENTICAL:
        before = stable(program(term(IDENTICAL[row.name])))[0].results[0]
        forms = list(row.forms(before)) or list(row.forms(term(IDENTICAL[row.name])))
        assert forms
        for after in forms:
            same(before, after, (-4.5, -0.75, 0.0625, 1.5, 3.0, 9.0))
