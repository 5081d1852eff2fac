"""A kernel is never wrong where eager is right: zeros, NaN, limits, and scaled incoming gradients."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Workshop
from elements import Elements, Formula
from torch import Tensor

from fusegen.algebra import mends
from fusegen.algebra.copied_lets import add_copies
from fusegen.algebra.derive import derive
from fusegen.algebra.limits import everywhere, finite
from fusegen.algebra.limits.numbers import INFINITE, infinity, number
from fusegen.algebra.simplify import simplify
from fusegen.algebra.simplify.rules import Rule
from fusegen.algebra.simplify.stable import AFTER_PARTS, ALWAYS, OPTIONAL
from fusegen.compiler import estimates, trial_edges
from fusegen.compiler.kernel_values import Points, in_float
from fusegen.compiler.mended import Mending
from fusegen.compiler.special_trial import KINDS, Trial
from fusegen.compiler.stages import stable_form
from fusegen.compiler.trial_limits import TrialLimits
from fusegen.core.method import Both, Pass
from fusegen.core.term import Apply, Let, Name, Number, Program, Term, call, names, rebuild, substitute
from fusegen.errors import FusegenError, NumberOutOfRange, Span, Undefined, UnknownName
from fusegen.numerics.ieee import value
from fusegen.numerics.roundoff.local import Mask
from fusegen.project.build import compiled_file
from fusegen.project.spec_warnings import contract_warnings

LARGE = 2.0**127 * 1.5
TWO = Number(Fraction(2))
NAN, INF = math.nan, math.inf
# a formula, where it is tried, and the output that a kernel of its stable form has other than eager
CASES: dict[str, tuple[Formula, tuple[float, ...], int]] = {
    "a zero of log1p": (Formula("log(1 + relu(x))"), (-0.0,), 0),
    "a zero of a power minus 1": (Formula("(1 + relu(x))**0.5 - 1"), (-0.0,), 0),
    "a zero slope": (Formula("exp(-x) / (1 + exp(-x))**2"), (0.0,), 1),
    "a negative zero slope": (Formula("relu(p - n + m)", {"m": 0.2}, ("p", "n")), (0.0, 1.0), 2),
    "NaN that a kink hides": (Formula("where(abs(x) < 1, 0.5 * x**2, abs(x) - 0.5)"), (NAN,), 1),
    "NaN that a stable form makes": (Formula("sqrt(relu(x) + a) - sqrt(a)", {"a": 0.0}), (-2.0,), 0),
}
# and where eager's has none, or another one than the limit
LIMITS: dict[str, tuple[Formula, float, int, float]] = {
    "a slope of hypot": (Formula("sqrt(1 + (s * x)**2)", {"s": 1.0}), INF, 1, 1.0),
    "a slope of hypot below": (Formula("sqrt(1 + (s * x)**2)", {"s": 1.0}), -INF, 1, -1.0),
    "a double exponential": (Formula("exp(-b * exp(-c * x))", {"b": 1.0, "c": 1.0}), -INF, 1, 0.0),
    "a quotient": (Formula("x / sqrt(1 + a * x**2)", {"a": 1.0}), INF, 0, 1.0),
}


def tried(formula: Formula, folder: Path, *inputs: float) -> tuple[list[Tensor], list[Tensor]]:
    """The float32 results of a formula's kernels on the CPU, and eager's."""
    found = Elements(formula, "tried", folder)
    tensors = [torch.tensor([x]) for x in inputs]
    return found("cpu", *tensors), found.eager(*tensors)


def same(a: Tensor, b: Tensor) -> bool:
    """True if both are one number, with its sign, or NaN."""
    return bool(a.isnan() & b.isnan()) or (bool(a == b) and bool(a.signbit() == b.signbit()))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CASES)
def test_a_special_result_is_eagers(name: str, tmp_path: Path) -> None:
    formula, at, output = CASES[name]
    ours, eager = tried(formula, tmp_path, *at)
    assert same(ours[output], eager[output])


@pytest.mark.full
@pytest.mark.parametrize("name", LIMITS)
def test_a_result_at_an_infinity_is_its_limit(name: str, tmp_path: Path) -> None:
    formula, at, output, limit = LIMITS[name]
    ours, _ = tried(formula, tmp_path, at)
    assert float(ours[output]) == limit


@pytest.mark.full
def test_a_scaled_gradient_does_not_overflow_on_the_way(tmp_path: Path) -> None:
    found = Elements(Formula("exp(-x * y)", inputs=("x", "y")), "scaled", tmp_path)
    x, y = torch.tensor([-float.fromhex("0x1.bfc54ep+11")]), torch.tensor([float.fromhex("0x1.92d70ep-6")])
    [value] = found._launch("cpu", "forward", x, y)
    one, four = (found.gradients("cpu", value, torch.full_like(x, g), x, y)[0] for g in (1.0, 4.0))
    assert float(four) == 4 * float(one)
    assert math.isfinite(four)


@pytest.mark.full
def test_a_guard_at_infinity_leaves_large_numbers_as_they_are(tmp_path: Path) -> None:
    """A sine's argument that is infinite takes another value; 2^126 in place of more is another number."""
    ours, _ = tried(Formula("0.5 * x * (1 + erf(sin(x)))"), tmp_path, LARGE)
    exact = LARGE / 2 * (1 + math.erf(math.sin(LARGE)))
    assert math.isclose(float(ours[0]), exact, rel_tol=1e-6)


def of_rule(rule: Rule) -> Program:
    """The left side of a rule as a formula; a number is 2."""
    numbers: dict[str, Term] = {name: TWO for name in names(rule.left) if name.endswith("_")}
    left = substitute(rule.left, numbers)
    return Program(tuple(dict.fromkeys(names(left))), (), (), (left,))


def in_words(term: Term) -> Term:
    match rebuild(term, in_words):
        case Apply("gauss", (argument,)):
            return call("exp", -call("square", argument))
        case other:
            return other


@pytest.mark.few(6)
@pytest.mark.parametrize("rule", [*ALWAYS, *AFTER_PARTS, *OPTIONAL], ids=lambda rule: rule.name)
def test_each_stable_form_keeps_zeros_and_nan(rule: Rule) -> None:
    """The law of a rule: the sign of a zero at either zero, and NaN, are those of the formula."""
    declared = of_rule(rule)
    formula = estimates.Formula(
        declared, replace(declared, results=(in_words(declared.results[0]),)), {}, {}
    )
    value, _ = simplify(stable_form(declared)[0], {})
    plain = Both(value, simplify(derive(value), {})[0])
    limits = partial(finite, inputs=declared.inputs, params={})
    mending = Mending(formula, limits, KINDS - {"limit", "linear"})
    programs = mending.mended(plain, plain.map(limits))
    trial = Trial(formula, programs)
    found = [fault for which in Pass for fault in trial.faults(mending.kernels(programs), which)]
    assert [fault for fault in found if fault.kind in mending.kinds] == []


def test_a_gradient_passes_nothing_on_where_its_branch_is_0() -> None:
    grad, x = Name("grad"), Name("x")
    slope = Program(("grad", "x"), (), (), (call("where", x <= 0, 0, grad * x * 2),))
    found = mends.incoming_last(slope, {})
    assert found.results == (call("where", x <= 0, 0, grad * (x * 2)),)


@pytest.mark.parametrize(("x", "shrunk"), [(-0.0, 0.0), (0.0, 0.0)])
def test_ieee_rows_have_the_signs_of_the_kernels(x: float, shrunk: float) -> None:
    assert math.copysign(1, value("tanh_shrink", [x])) == math.copysign(1, shrunk)
    assert value("sign", [NAN]) == 0


BODY = 'inputs: {x: {}}\nformula: "sign(x) * log(1 + 255 * abs(x)) / log(256)"\n'
WAYS_OUT = (
    "narrow the inputs with 'assume', write the formula another way, set 'numerics: eager', or give the "
    "reason why it is right with 'accept: {value: ...}'"
)


def test_build_says_which_special_result_is_not_eagers(workshop: Workshop) -> None:
    """A polynomial in pieces has the sign of what is next to a zero."""
    said = list(contract_warnings(compiled_file(workshop.spec("law", BODY + "dtypes: [float32]\n"))))
    assert said == [f"law: the value is -0 at x = -0; eager gives 0; {WAYS_OUT}"]


def test_a_special_result_can_be_accepted(workshop: Workshop) -> None:
    accepted = BODY + "dtypes: [float32]\naccept: {value: the sign of a zero is no matter}\n"
    assert list(contract_warnings(compiled_file(workshop.spec("law", accepted)))) == []


def test_build_says_which_result_is_lost_on_the_way(workshop: Workshop) -> None:
    spec = workshop.spec("bump", 'inputs: {x: {}}\nformula: "1 / (1 + (x / 2)**2)"\ndtypes: [float32]\n')
    [said] = contract_warnings(compiled_file(spec))
    assert said == f"bump: the value is 0 at x = -1.56571898e+20; exactly it is 1.63167193e-40; {WAYS_OUT}"


def test_a_guard_of_the_incoming_gradient_is_decided_where_that_is_1() -> None:
    grad, x = Name("grad"), Name("x")
    guarded = everywhere.ordinary(("grad",), call("sin", x), x)
    program = Program(("grad", "x"), (), (), (grad * guarded,))
    assert mends.incoming_last(program, {}).results == (grad * call("sin", x),)


@pytest.mark.parametrize(
    ("error", "passes"), [(NumberOutOfRange, True), (Undefined, True), (UnknownName, False)]
)
def test_a_mend_is_passed_over_where_a_constant_has_no_value(
    error: Callable[..., FusegenError], passes: bool, workshop: Workshop
) -> None:
    """Any other error is a fault of the compiler, and ends the build with its message."""
    compiled = compiled_file(workshop.spec("gate", "formula: x * tanh(x)"))
    mending = Mending(compiled.declared.formula, lambda program: program, KINDS)

    def fails() -> Program:
        raise error(Span("gate.yaml"), what="a constant", remedy="", name="y", near="")

    ways = (fails, lambda: compiled.programs.forward)
    with nullcontext() if passes else pytest.raises(FusegenError):
        assert len([*mending.each(Pass.FORWARD, compiled.programs, ways)]) == 1


def test_copies_of_steps_read_the_values_in_the_place_of_names() -> None:
    """A step that reads none of the names stays, and a copy that another one reads is read by its name."""
    x, y = Name("x"), Name("y")
    lets = (Let("a", x + 1), Let("b", y * y), Let("c", Name("a") * Name("b")))
    values: dict[str, Term] = {"x": number(-INF)}
    made: dict[str, Term] = {}

    def named(name: str, term: Term) -> str:
        made[f"new_{name}"] = term
        return f"new_{name}"

    add_copies(values, lets, named)
    assert made == {"new_a": -INFINITE + 1, "new_c": Name("new_a") * Name("b")}
    assert values == {"x": infinity(-1.0), "a": Name("new_a"), "c": Name("new_c")}


@pytest.mark.parametrize("inputs", [1, 4, 31])
def test_edges_of_many_inputs_take_as_many_evaluations_as_those_of_four(inputs: int) -> None:
    draw = np.random.default_rng(1)
    sample = {f"x{k}": draw.normal(size=2048) for k in range(inputs)}
    evaluated: list[int] = []

    def positive() -> trial_edges.Beyond:
        def beyond(points: Points, rows: trial_edges.Rows) -> Mask:
            evaluated.append(len(rows))
            found: Mask = np.sum([*points.values()], axis=0) > 0
            return found

        return beyond

    found = trial_edges.crossings(sample, 64, positive)
    passes = min(inputs, trial_edges.PASSES)
    assert len(evaluated) == passes * (2 + trial_edges.STEPS)
    assert sum(evaluated) <= passes * (2 * 1024 + trial_edges.STEPS * 64)
    assert np.abs(np.sum([*found.values()], axis=0)).max() < 2.0**-18
    moved = [bool((~np.isin(found[name], in_float(column))).any()) for name, column in sample.items()]
    assert moved == [True] * inputs


@pytest.mark.parametrize(("name", "limit"), [("log1p", INF), ("sin", None), ("tanh", 1.0)])
def test_a_logarithm_grows_without_bound(name: str, limit: float | None) -> None:
    program = Program(("x",), (), (), (call(name, Name("x") * Name("x") * Name("x")),))
    assert TrialLimits(program).at(0, "x", INF, {}) == limit


def test_a_cosine_of_turns_has_no_limit() -> None:
    """It is 1 at every large double."""
    program = Program(("x",), (), (), (call("cos", 2 * call("pi") * Name("x")),))
    assert TrialLimits(program).at(0, "x", INF, {}) is None


def test_a_limit_is_found_once_for_all_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = TrialLimits(Program(("x",), (), (), (call("tanh", Name("x")),)))
    assert limits.at(0, "x", INF, {"x": 1.0}) == 1.0
    monkeypatch.setattr(TrialLimits, "_tendency", None)
    assert limits.at(0, "x", INF, {"x": 1.0}) == 1.0
