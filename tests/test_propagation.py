"""No rewrite loses an input: what NaN makes NaN before a rewrite, it makes NaN after it."""

import math
from fractions import Fraction
from pathlib import Path

import pytest
from parsed import parsed
from test_stable_rows import SPLIT
from test_stable_rows import term as row

from fusegen.algebra.limits.evaluation import Evaluation
from fusegen.algebra.nan_propagation import becomes_nan, keeps_nan
from fusegen.algebra.simplify.rewrites import FEWER, FORMS, formed
from fusegen.algebra.simplify.rules import Rule
from fusegen.algebra.simplify.splits import SPLITS, Split
from fusegen.algebra.simplify.stable import ALWAYS, OPTIONAL, stable, uses
from fusegen.compiler import stages
from fusegen.core.method import Both
from fusegen.core.term import Name, Number, Program, Term, call, names, substitute
from fusegen.language.library import Library
from fusegen.language.parse import parse_spec

NAN, INFINITY = math.nan, math.inf
X, M = Name("x"), Name("m")
CANCELLING: tuple[dict[str, Term], ...] = (  # operands that cancel in sums and products
    {"a": X, "b": -X, "c": X, "d": X, "g": X},
    {"a": X - M, "b": M - X, "c": M, "d": X, "g": M},
    {"a": M - X, "b": X, "c": -X, "d": M, "g": 1 / X},
    {"a": X, "b": X, "c": 1 / X, "d": 1 / X, "g": M},
    {"a": X * M, "b": 1 / M, "c": M, "d": M, "g": X / M},
)
KNOWN = {"x": 0.75, "m": -0.5, "y": 1.25}


def value(term: Term, **known: float) -> float:
    return Evaluation({**KNOWN, **known})(term)


def instance(rule: Rule, operands: dict[str, Term]) -> Term:
    """The left side of a rule for some operands; its numbers are 3."""
    numbers: dict[str, Term] = {n: Number(Fraction(3)) for n in names(rule.left) if n.endswith("_")}
    return substitute(rule.left, operands | numbers)


@pytest.mark.together
@pytest.mark.parametrize("operands", CANCELLING, ids=range(len(CANCELLING)))
@pytest.mark.parametrize("rule", [*ALWAYS, *OPTIONAL, *FORMS, *FEWER], ids=lambda rule: rule.name)
def test_no_rule_loses_an_input(rule: Rule, operands: dict[str, Term]) -> None:
    before = instance(rule, operands)
    program = Program(("x", "m"), (), (), (before,))
    in_rows = stable(program)[0]
    found = [program.results[0] for program in (in_rows, formed(program)[0], formed(in_rows)[0])]
    found += [place.after for place in uses(before, OPTIONAL, ())]
    for name in names(before):
        if math.isnan(value(before, **{name: NAN})):
            assert all(math.isnan(value(after, **{name: NAN})) for after in found), (name, found)


@pytest.mark.together
@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.name)
def test_no_split_loses_an_input(split: Split) -> None:
    before = row(SPLIT[split.name])
    (place,) = uses(before, (), (split,))
    assert math.isnan(value(before, x=NAN, y=1.25))
    assert math.isnan(value(place.after, x=NAN, y=1.25))


LOST = {  # formula -> the inputs that cancel over the real numbers
    "exp(m - n) * exp(x - m)": "m",
    "exp(x) * exp(-x) + m + n": "x",
    "x * m / x * tanh(exp(n))": "x",
    "x / (1 + abs(m)) * log(1 + exp(n)) / x": "x",
    "log(exp(x - m) + exp(n - m)) + m": "m",
    "log(exp(x) * exp(m - x)) + n": "x",
    "sqrt(1 + x - x) - 1 + m * n": "x",
    "where(n > 0, exp(m) * exp(x - m), m)": "m",
}


def limited(formula: str) -> Both[Program]:
    text = f'name: it\nsummary: A test.\ninputs: {{m: {{}}, n: {{}}, x: {{}}}}\nformula: "{formula}"\n'
    declared = stages.declared(parse_spec(text, "it"), Library(Path()))
    return stages.limited(declared, stages.derived(declared))


@pytest.fixture(scope="module", params=LOST)
def programs(request: pytest.FixtureRequest) -> tuple[Both[Program], str]:
    """The programs of a formula with guards, and the inputs that it must not lose."""
    return limited(request.param), LOST[request.param]


@pytest.mark.few(1)
@pytest.mark.together
@pytest.mark.parametrize("others", [1.0, -2.5, 1e10])
def test_nan_of_an_input_that_cancels_gives_nan(programs: tuple[Both[Program], str], others: float) -> None:
    forward, lost = programs[0].forward, programs[1]
    known = {**dict.fromkeys(forward.inputs, others), lost: NAN}
    evaluation = Evaluation(known).define(forward.lets)
    assert math.isnan(evaluation(forward.results[0]))


def test_an_infinity_that_cancels_gives_what_eager_gives() -> None:
    program = limited("exp(m - n) * exp(x - m)").forward
    for m, n, x in [(INFINITY, 1.0, 1.0), (-INFINITY, 1.0, 1.0), (INFINITY, INFINITY, 1.0)]:
        assert math.isnan(Evaluation({"m": m, "n": n, "x": x}).define(program.lets)(program.results[0]))
    known = {"m": 90.0, "n": -1.0, "x": 0.5}  # where a factor overflows in float
    assert math.isclose(Evaluation(known).define(program.lets)(program.results[0]), math.exp(1.5))


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ("x - x", "0", False),
        ("x * m / x", "m", False),
        ("where(x > m, 1, 0)", "1", True),  # NaN fails a comparison, it makes nothing NaN
        ("relu(x) - relu(x - 1)", "where(x > 1, 1, relu(x))", True),
        ("where(x > 0, m - m, m)", "where(x > 0, 0, m)", False),
        ("where(x != x, m, x)", "m", True),
        ("x + where(m < 0, m, 0)", "x", True),
        ("where(x > 0, x + m, m)", "x", False),
        ("sign(x)", "1", True),
    ],
)
def test_the_law(before: str, after: str, kept: bool) -> None:
    assert keeps_nan(parsed(before, "x m"), parsed(after, "x m")) is kept


def test_the_law_looks_through_steps() -> None:
    before, after = X / M * Name("t") * M, X * Name("t")
    assert not keeps_nan(before, after)
    assert keeps_nan(before, after, {"t": call("sigmoid", X * M)})
    assert becomes_nan(after, {"m"}, {"t": X * M})
