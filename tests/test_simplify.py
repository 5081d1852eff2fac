"""A rule is a row and the row is its test: proved over the reals, and the same bits in floating point."""

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from conftest import Workshop
from numpy.typing import NDArray
from parsed import parsed

from fusegen.algebra.simplify import rewrites, simplify
from fusegen.algebra.simplify.constants import constants_folded, folded
from fusegen.algebra.simplify.rewrites import FORMS, formed
from fusegen.algebra.simplify.rules import RULES, Fact, Rule, matched, proved
from fusegen.codegen.printers.dump import rewrite
from fusegen.codegen.printers.notation import term as written
from fusegen.core.interval import INFINITY, Interval, between
from fusegen.core.ops import OPS
from fusegen.core.term import Apply, Let, Name, Number, Program, SpecCall, Term, names, rebuild
from fusegen.errors import FusegenError

Floats = NDArray[np.float32]
ONE, ZERO = np.float32(1), np.float32(0)

# what the bodies of ops.OPS compute, in numpy, comparison for comparison
COMPUTED: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "where": lambda condition, a, b: np.where(condition != 0, a, b),
    "relu": lambda x: np.where(x < 0, ZERO, x),
    "relu6": lambda x: np.where(x < 0, ZERO, np.where(x > 6, np.float32(6), x)),
    "clamp": lambda x, low, high: COMPUTED["clamp_max"](COMPUTED["clamp_min"](x, low), high),
    "saturate": lambda x, low, high: COMPUTED["clamp"](x, low, high),
    "clamp_min": lambda x, low: np.where(x < low, low, x),
    "clamp_max": lambda x, high: np.where(x > high, high, x),
    "minimum": lambda a, b: np.where((a < b) | np.isnan(a), a, b),
    "maximum": lambda a, b: np.where((a > b) | np.isnan(a), a, b),
    "abs": np.abs,
    "square": lambda x: x * x,
    "cube": lambda x: x * x * x,
    "reciprocal": lambda x: ONE / x,
    "sqrt": lambda x: torch.sqrt(torch.from_numpy(x)).numpy(),  # not quite the nearest on the CPU
    "rsqrt": lambda x: ONE / np.sqrt(x),
    "pow": lambda x, power: torch.pow(torch.from_numpy(x), float(power.flat[0])).numpy(),
}
SPECIAL = [0.0, 1e-45, 1e-38, 0.1, 0.5, 1.0, 3.0, 6.0, 6.0000005, 7.5, 255.0, 1e19, 3.4028235e38, math.inf]
VALUES = [sign * value for value in SPECIAL for sign in (1.0, -1.0)] + [math.nan]
RNG = np.random.default_rng(7)
FEWER = [*VALUES[:2], 1.0, -1.0, 6.0, 6.0000005, -7.5, math.inf, -math.inf, math.nan]  # of many names
VALUES += [float(v) for v in RNG.standard_normal(12) * 10.0 ** RNG.integers(-30, 30, 12)]
BETWEEN = 1.49 * 2.0**-149  # no float32: it rounds down, and its half rounds up
CONSTANTS = [v for v in (BETWEEN, *VALUES) if math.isfinite(v) and math.copysign(1, v) * (v == 0) >= 0]
FIXED = {"zero_": 0.0, "six_": 6.0, "tiny_": 2.0**-100}
RELATIONS: dict[str, Callable[[float, float], bool]] = {
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
}  # fmt: skip


def computed(term: Term, values: dict[str, NDArray[np.float64]]) -> Floats:
    """The float32 value of a term, rounded after each operation."""
    match term:
        case Number(value):
            shape = next(iter(values.values())).shape
            return np.full(shape, np.float32(float(value)))
        case Name(name):
            return values[name].astype(np.float32)
        case Apply("div", (Name(name), Number(value))) if name.endswith(
            "_"
        ):  # the compiler divides numbers
            return np.asarray(values[name] / float(value), np.float32)
        case Apply(op, args):
            found: Floats = np.asarray(COMPUTED[op](*(computed(arg, values) for arg in args)), np.float32)
            return found
    raise AssertionError(term)


def granted(fact: Fact, values: dict[str, float]) -> bool:
    """True if a fact holds at a point; it says nothing of NaN, so it grants that."""
    left, right = ({**values, **FIXED}[name] for name in (fact.left, fact.right))
    return math.isnan(left) or math.isnan(right) or RELATIONS[fact.relation](left, right)


def points(rule: Rule) -> dict[str, NDArray[np.float64]]:
    """Every combination of values at which the facts of a rule hold."""
    variables = names(rule.left)
    values = VALUES if len(variables) < 4 else FEWER
    choices = [CONSTANTS if name.endswith("_") else values for name in variables]
    rows = [
        row
        for row in itertools.product(*choices)
        if all(granted(fact, dict(zip(variables, row, strict=True))) for fact in rule.facts)
    ]
    columns = np.array(rows, np.float64).T
    return {name: np.ascontiguousarray(column) for name, column in zip(variables, columns, strict=True)}


def named(rule: Rule) -> str:
    return f"{rule.name}: {written(rule.left)} is {written(rule.right)}"


def same_bits(left: Floats, right: Floats) -> NDArray[np.bool_]:
    """Where two arrays have the same bits, every NaN being one value."""
    equal: NDArray[np.bool_] = left.view(np.uint32) == right.view(np.uint32)
    return equal | (np.isnan(left) & np.isnan(right))


@pytest.mark.parametrize("rule", RULES, ids=named)
def test_a_rule_is_proved_over_the_reals(rule: Rule) -> None:
    assert proved(rule)


@pytest.mark.together
@pytest.mark.parametrize("rule", RULES, ids=named)
def test_a_rule_gives_the_same_bits_wherever_its_facts_hold(rule: Rule) -> None:
    values = points(rule)
    assert next(iter(values.values())).size >= 15
    with np.errstate(all="ignore"):
        left, right = (computed(side, values) for side in (rule.left, rule.right))
    same = same_bits(left, right)
    wrong = {name: column[~same][:3] for name, column in values.items()}
    assert same.all(), f"{wrong}: {left[~same][:3]} is not {right[~same][:3]}"


@pytest.mark.together
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.facts], ids=named)
def test_a_rule_needs_each_of_its_facts(rule: Rule) -> None:
    for missing in rule.facts:
        rest = tuple(fact for fact in rule.facts if fact != missing)
        weaker = Rule(rule.name, rule.left, rule.right, rest)
        values = points(weaker)
        with np.errstate(all="ignore"):
            left, right = (computed(side, values) for side in (rule.left, rule.right))
        assert not same_bits(left, right).all(), f"{missing} is not needed"


@pytest.mark.together
@pytest.mark.parametrize("rule", RULES, ids=named)
def test_a_rule_names_only_what_it_matched(rule: Rule) -> None:
    known = {*names(rule.left), *FIXED}
    assert set(names(rule.right)) <= known
    assert {name for fact in rule.facts for name in (fact.left, fact.right)} <= known


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("clamp(a, low, high)", "clamp_min(a, low)"), ("relu(a)", "a"), ("a * 2", "a"), ("a + 1", "a"),
        ("a ** 2", "cube(a)"), ("abs(a)", "-a"), ("a / 2", "a * 2"), ("relu6(a)", "relu(a)"),
        ("where(a < low, high, a)", "a"), ("a - -low", "a - low"), ("-a * low", "a * low"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_not_proved(left: str, right: str) -> None:
    assert not proved(Rule("wrong", parsed(left, "a low high"), parsed(right, "a low high")))


def simplest(text: str, **assume: Interval) -> str:
    """A formula in x and y after the simplifier, as text."""
    program, _ = simplify(Program(("x", "y"), (), (), (parsed(text),)), assume)
    return written(program.results[0])


@pytest.mark.together
@pytest.mark.parametrize(
    ("formula", "after"),
    [
        ("relu(relu(x))", "relu(x)"),
        ("relu(relu6(x))", "relu6(x)"),
        ("relu6(relu(x))", "min(relu(x), 6)"),
        ("clamp(tanh(x), -1, 1)", "tanh(x)"),
        ("clamp(tanh(x), -1, 2)", "tanh(x)"),
        ("clamp(tanh(x), 0, 1)", "max(tanh(x), 0)"),
        ("clamp(tanh(x), -1, 0.5)", "min(tanh(x), 0.5)"),
        ("clamp(sigmoid(x), 0, 1)", "sigmoid(x)"),
        ("relu(exp(x))", "exp(x)"),
        ("relu6(clamp(x, -1, 1))", "relu(min(max(x, -1), 1))"),
        ("maximum(relu(x), -1)", "relu(x)"),
        ("maximum(-1, relu(x))", "relu(x)"),
        ("minimum(relu6(x), 7)", "relu6(x)"),
        ("minimum(6, relu6(x))", "relu6(x)"),
        ("abs(relu(x) + 1)", "relu(x) + 1"),
        ("abs(exp(x) + 1) * 1", "exp(x) + 1"),
        ("x ** 2 + x ** 3", "x² + x³"),
        ("-(-x) / 1 - 0", "x"),
        ("x * (2 - 1)", "x"),
        ("x * (1 / 3 + 2 / 3)", "x"),
        ("sqrt(4) * x", "2 · x"),
        ("where(relu(x) < 0, y, x)", "x"),
        ("where(relu(x) <= -1, y, x)", "x"),
        ("where(relu6(x) > 6, y, x)", "x"),
        ("where(relu6(x) >= 7, y, x)", "x"),
        ("-x * y", "-(x · y)"),
        ("x * -y", "-(x · y)"),
        ("-x / y", "-(x / y)"),
        ("-x * -y", "x · y"),
        ("x - -y", "x + y"),
        ("x + -y", "x - y"),
    ],
)
def test_a_formula_gets_simpler(formula: str, after: str) -> None:
    assert simplest(formula) == after


@pytest.mark.together
@pytest.mark.parametrize(
    "formula",
    [
        "relu(clamp(x, -1, 1))",
        "clamp(tanh(x), -0.99, 0.99)",
        "relu(x - 1)",
        "relu(relu(x) - 1)",
        "relu6(relu(x) * 7 - 1)",
        "maximum(relu(x), 0)",  # relu(-0.0) is -0.0, and the maximum of -0.0 and 0 is +0.0
        "minimum(-relu(x), 0)",
        "abs(relu(x))",
        "maximum(relu(x), relu(y) - 1)",
        "clamp(tanh(x), 3, 2)",
        "clamp(x, 0, 1)",
        "x + 0",
        "x * 0",
        "x - x",
        "x / x",
        "(x + 3) / 6",
        "x * 6 / 6",
        "y * x + x * y",
        "exp(log(x))",
        "sin(x) + 1.5",
        "maximum(x, x)",
        "where(relu(x) <= 0, y, x)",
        "where(relu6(x) >= 6, y, x)",
        "where(relu(x) > -1, y, x)",  # NaN is not
        "where(relu(x) != -1, y, x)",
        "x / -y",
    ],
)
def test_a_formula_that_only_looks_simpler_stays(formula: str) -> None:
    before = written(parsed(formula))
    after = simplest(formula)
    assert after == {"clamp(tanh(x), 3, 2)": "min(max(tanh(x), 3), 2)"}.get(formula, before)


@pytest.mark.parametrize("form", [*FORMS, *rewrites.FEWER], ids=named)
def test_a_form_is_proved_over_the_reals(form: Rule) -> None:
    """Everywhere: a fact of a form is about what rounds."""
    assert proved(replace(form, facts=()))
    assert set(names(form.right)) <= set(names(form.left))


@pytest.mark.together
@pytest.mark.parametrize(
    ("formula", "after"),
    [
        ("x * tanh(softplus(x))", "times_tanh_softplus(x)"),
        ("y * tanh(softplus(x))", "y * tanh_softplus(x)"),
        ("x * ndtr(x)", "times_ndtr(x)"),
        ("tanh(softplus(relu(x) + y)) - 1", "tanh_softplus(relu(x) + y) - 1"),
        ("x / (abs(x) + 1)", "soft_sign(x)"),
        ("x / (1 + abs(x))", "soft_sign(x)"),
        ("y * exp(x) + y * x * 3", "y * (exp(x) + x * 3)"),
        ("y * x + y * x * 3", "y * x + y * x * 3"),  # arithmetic
        ("y / x * exp(y) * x", "y / x * exp(y) * x"),  # which is NaN where x is
        ("x * tanh(exp(2 * x))", "x * tanh_of_exp(2 * x)"),
        ("softplus(tanh(x))", "softplus(tanh(x))"),
        ("y / (abs(x) + 1)", "y / (abs(x) + 1)"),
        ("x / (abs(x) + 2)", "x / (abs(x) + 2)"),
        ("tanh(log1p(exp(x)))", "tanh(log1p(exp(x)))"),
    ],
)
def test_a_form_is_taken_wherever_it_matches(formula: str, after: str) -> None:
    def plain(text: str) -> Term:
        def known(term: Term) -> Term:
            term = rebuild(term, known)
            compiler = isinstance(term, SpecCall) and term.spec in OPS
            return Apply(term.spec, term.args) if compiler and isinstance(term, SpecCall) else term

        return known(parsed(text))

    lets = (Let("u", parsed(formula)),)
    program, _ = formed(Program(("x", "y"), ("a",), lets, (parsed(formula), Name("u"))))
    assert program == Program(("x", "y"), ("a",), (Let("u", plain(after)),), (plain(after), Name("u")))


def test_only_an_accurate_spec_takes_forms(workshop: Workshop) -> None:
    workshop.spec("one", "formula: x / (1 + abs(x))")
    workshop.spec("two", "numerics: eager\nformula: x / (1 + abs(x))")
    assert "soft_sign" in workshop.run("show", "one", "--stage", "compose").output
    assert "soft_sign" not in workshop.run("show", "two", "--stage", "module").output


def test_each_of_several_results_gets_simpler_and_keeps_the_steps_it_needs() -> None:
    lets = (Let("u", parsed("relu(x)")), Let("v", parsed("y * 2")), Let("w", parsed("x + y")))
    results = (parsed("relu(u)", "u"), parsed("v - 0", "v"), parsed("abs(u + 1)", "u"))
    after, steps = simplify(Program(("x", "y"), (), lets, results), {})
    assert [let.name for let in after.lets] == ["u", "v"]
    assert [written(result) for result in after.results] == ["u", "v", "u + 1"]
    assert [step.rule for step in steps] == ["dead relu", "minus zero", "dead abs"]


def test_an_assumption_is_used_and_the_shape_or_filling_of_an_input_never_is() -> None:
    assert simplest("relu(x) + relu(y)", x=between(0, INFINITY)) == "x + relu(y)"
    assert simplest("relu(x) + relu(y)", y=between(-1, 5)) == "relu(x) + relu(y)"


def test_a_chain_of_relu_and_hardswish_loses_its_lower_clamp(workshop: Workshop) -> None:
    text = workshop.run("show", "relu_hardswish", "--stage", "simplify").output
    assert "return after_relu · min(after_relu + 3, 6) / 6\n" in text
    assert text.startswith("Dead lower bound: ")


def test_a_range_reaches_through_named_steps() -> None:
    lets = (Let("u", parsed("relu(x)")), Let("v", parsed("u + 1", "u")), Let("w", parsed("y * 2")))
    program = Program(("x", "y"), (), lets, (parsed("relu(v) * v", "v"),))
    after, steps = simplify(program, {})
    assert [let.name for let in after.lets] == ["u", "v"]
    assert [written(result) for result in after.results] == ["v · v"]
    assert [rewrite(step) for step in steps] == ["Dead relu: relu(v) is v, since v lies in [1, inf]."]


def test_a_step_that_becomes_a_name_or_a_number_disappears() -> None:
    lets = (Let("u", parsed("x * 1")), Let("v", parsed("2 * 3", "u")))
    after, _ = simplify(Program(("x",), (), lets, (parsed("u ** v", "u v"),)), {})
    assert after.lets == ()
    assert after.results == (parsed("x ** 6"),)


@pytest.mark.together
@pytest.mark.parametrize("op", [name for name, row in OPS.items() if row.written and row.args])
def test_constants_are_folded_to_the_value_of_their_function(op: str) -> None:
    arguments = {"where": (), "log1p": (0.75,), "sqrt": (2.0,), "rsqrt": (2.0,), "pow": (2.0, 0.5)}
    values = arguments.get(op, (0.75, -1.5, 2.5)[: len(OPS[op].args)])
    if op.startswith("log") and op != "log1p":
        values = (0.75,)
    if not values:
        return
    term = folded(Apply(op, tuple(Number(Fraction(v)) for v in values)))
    assert isinstance(term, Number)
    real = OPS[op].real(*(float(v) for v in values))
    assert math.isclose(float(term.value), float(real), rel_tol=1e-14, abs_tol=1e-300)


@pytest.mark.together
@pytest.mark.parametrize("op", ["exp", "sqrt", "sin", "tanh", "erf", "log"])
@pytest.mark.parametrize("value", ["1e-30", "0.5", "2", "77"])
def test_constants_are_folded_to_sixty_digits(op: str, value: str) -> None:
    with mpmath.workdps(120):
        expected = getattr(mpmath, op)(mpmath.mpf(value))
        program, _ = simplify(Program(("x",), (), (), (parsed(f"{op}({value})"),)), {})
        [result] = program.results
        assert isinstance(result, Number)
        found = mpmath.mpf(result.value.numerator) / result.value.denominator
        assert abs(found - expected) <= abs(expected) * mpmath.mpf(10) ** -55


@pytest.mark.parametrize(
    ("condition", "left"),
    [("1 < 2", "x"), ("2 <= 1", "y"), ("-1 > 1", "y"), ("2 >= 2", "x"), ("x < 2", "where(x < 2, x, y)")],
)
def test_a_selection_that_numbers_decide_is_the_chosen_branch(condition: str, left: str) -> None:
    program = Program(("x", "y"), (), (), (parsed(f"3 * where({condition}, x, y)"),))
    assert simplify(program, {})[0].results == (parsed(f"3 * {left}"),)


def test_constants_of_a_whole_program_are_folded_and_nothing_else_changes() -> None:
    lets = (Let("u", parsed("relu(relu(x)) * (1 / 3 + 1)")),)
    program = constants_folded(Program(("x", "y"), ("a",), lets, (parsed("x / (2 * 3)"), parsed("y * 1"))))
    step = Let("u", Apply("mul", (parsed("relu(relu(x))"), Number(Fraction(4, 3)))))
    assert program == Program(("x", "y"), ("a",), (step,), (parsed("x / 6"), parsed("y * 1")))


def test_arithmetic_of_constants_is_exact() -> None:
    program, _ = simplify(Program(("x",), (), (), (parsed("1 / 3 + 0.1 * 7 - -2"),)), {})
    assert program.results == (Number(Fraction(1, 3) + Fraction(7, 10) + 2),)


@pytest.mark.parametrize("formula", ["1 / 0", "sqrt(-1)", "log(0)", "log(-2)", "0 ** -1", "(-8) ** 0.5"])
def test_a_constant_without_a_real_value_is_refused(formula: str) -> None:
    with pytest.raises(FusegenError, match="has no real value"):
        simplest(f"x + {formula}")


@pytest.mark.parametrize(
    ("formula", "lies"),
    [
        ("log(-1 - x * x)", "log of what lies in [-inf, -1]"),
        ("log2(minimum(x, 0) - 0.5)", "log2 of what lies in [-inf, -1/2]"),
        ("log1p(-2 - relu(x))", "log1p of what lies in [-inf, -2]"),
        ("sqrt(-abs(x) - 1)", "sqrt of what lies in [-inf, -1]"),
        ("rsqrt(tanh(x) - 3)", "rsqrt of what lies in [-4, -2]"),
    ],
)
def test_a_formula_that_has_a_real_value_nowhere_is_refused(formula: str, lies: str) -> None:
    with pytest.raises(FusegenError, match=re.escape(lies)):
        simplest(formula)
    simplest("log(x) + sqrt(x - 1)")  # which has one somewhere


@pytest.mark.parametrize("formula", ["1e308 * 10", "exp(710)", "exp(-800)", "2 ** -1080", "-1e200 ** 2"])
def test_a_constant_that_float64_cannot_hold_is_refused(formula: str) -> None:
    with pytest.raises(FusegenError, match="does not fit in float64"):
        simplest(f"x + {formula}")


def test_a_pattern_matches_a_repeated_name_only_with_equal_parts() -> None:
    pattern = Apply("sub", (Name("a"), Name("a")))
    assert matched(pattern, parsed("relu(x) - relu(x)"), {}) == {"a": parsed("relu(x)")}
    assert matched(pattern, parsed("relu(x) - relu(y)"), {}) is None
    assert matched(Name("c_"), parsed("x"), {}) is None
    assert matched(Name("c_"), parsed("3"), {}) == {"c_": parsed("3")}


# a comparison after rounding, and the same before
KINKS = {
    "where(x + 3 >= 6, x, y)": "where(x >= 3, x, y)",
    "where((x - 1) / 6 < 0.5, x, y)": "where(x < 4, x, y)",
    "where(0.2 * x + 0.5 <= 1, x, y)": "where(x <= 2.5, x, y)",
    "where(u > 6, x, y)": "where(x > 3, x, y)",  # u is x + 3
    "where(-2 * x > 1, x, y)": "where(-2 * x > 1, x, y)",  # which falls
    "where(a * x > 1, x, y)": "where(a * x > 1, x, y)",
    "where(x + y > 1, x, y)": "where(x + y > 1, x, y)",
}


@pytest.mark.parametrize(("formula", "after"), KINKS.items())
def test_a_kink_is_where_the_input_has_it(formula: str, after: str) -> None:
    def at(text: str) -> Term:
        return parsed(text, "x y a u")

    program, _ = formed(Program(("x", "y"), ("a",), (Let("u", at("x + 3")),), (at(formula),)))
    assert program == Program(("x", "y"), ("a",), (), (at(after),))
