"""Enclosures: every operation against mpmath, the kinks against the table of gradients, and the ends."""

import itertools
import math
from array import array
from fractions import Fraction

import flint
import mpmath
import oracle
import pytest
import torch
from budget import budget, examples
from conftest import ROOT
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kernels import LIBRARY, by_module, smooth
from parsed import parsed

from fusegen.compiler.stages import real
from fusegen.core.gradients import GRADIENTS
from fusegen.core.ops import OPS
from fusegen.core.term import Apply, Let, Name, Number, Program, Term, call
from fusegen.evidence.certify.enclosures import CHUNK, Enclosure, values
from fusegen.evidence.certify.enclosures.ball_functions import ROWS
from fusegen.evidence.certify.enclosures.doubles import Real
from fusegen.evidence.certify.enclosures.power_series import PRECISIONS
from fusegen.language import library


def program(formula: str, inputs: str = "x", params: str = "", **lets: str) -> Program:
    scope = " ".join([inputs, params, *lets])
    steps = tuple(Let(name, parsed(text, scope)) for name, text in lets.items())
    return Program(tuple(inputs.split()), tuple(params.split()), steps, (parsed(formula, scope),))


def at(formula: str, *point: float, **params: Fraction) -> tuple[Real, ...]:
    """A formula in x, y and z, or in as many of them as the point has numbers."""
    inputs = " ".join("xyz"[: len(point)])
    return Enclosure(program(formula, inputs, " ".join(params)), params)(*point)


def doubles(results: tuple[Real, ...]) -> tuple[float, ...]:
    return tuple(result.hi for result in results)


# --- every operation ------------------------------------------------------------------------------------


def test_every_operation_has_a_row_and_a_second_opinion() -> None:
    slopes = {op: len(of.slopes) for op, of in oracle.PRIMITIVES.items()}
    assert slopes.items() >= {op: len(row.args or "x") for op, row in OPS.items()}.items()
    assert set(ROWS) == set(oracle.PRIMITIVES)


@pytest.mark.together
@pytest.mark.parametrize("op", OPS)
def test_an_operation_is_mpmaths(op: str) -> None:
    """At random numbers of every size and at the kinks, value and slopes, to 100 bits."""
    largest, point = max(oracle.differences(op, examples(300), seed=1))
    assert largest <= 1, point


# --- kinks ----------------------------------------------------------------------------------------------

KINKS = {
    ("relu", (0.0,)): (0.0,),
    ("relu6", (0.0,)): (0.0,),
    ("relu6", (6.0,)): (0.0,),
    ("abs", (0.0,)): (0.0,),
    ("sign", (0.0,)): (0.0,),
    ("clamp", (-1.0, -1.0, 6.0)): (1.0, 0.0, 0.0),
    ("clamp", (6.0, -1.0, 6.0)): (1.0, 0.0, 0.0),
    ("clamp", (0.0, 1.0, 1.0)): (0.0, 0.0, 0.0),
    ("clamp", (0.0, 6.0, 1.0)): (0.0, 0.0, 1.0),
    ("saturate", (-1.0, -1.0, 6.0)): (0.0, 1.0, 0.0),
    ("saturate", (6.0, -1.0, 6.0)): (0.0, 0.0, 1.0),
    ("saturate", (1.0, 1.0, 1.0)): (0.0, 1.0, 1.0),
    ("clamp_min", (1.0, 1.0)): (1.0, 0.0),
    ("clamp_max", (1.0, 1.0)): (1.0, 0.0),
    ("minimum", (1.0, 1.0)): (0.5, 0.5),
    ("maximum", (1.0, 1.0)): (0.5, 0.5),
    ("where", (0.0, 3.0, 3.0)): (0.0, 0.0, 1.0),
    ("pow", (0.0, 1.0)): (1.0, 0.0),
    ("pow", (0.0, 0.0)): (0.0, 0.0),
    ("soft_sign", (0.0,)): (1.0,),
}


@pytest.mark.together
@pytest.mark.parametrize(("op", "point"), KINKS, ids=str)
def test_a_kink_has_pytorchs_slope(op: str, point: tuple[float, ...]) -> None:
    found = Enclosure(oracle.program(op), {})(*point)
    assert doubles(found[1:]) == KINKS[op, point]
    assert all(result.lo == 0 for result in found)


@pytest.mark.together
@pytest.mark.parametrize("op", sorted({op for op, _ in KINKS} - {"where"}))
def test_slopes_at_kinks_and_between_are_those_of_the_table(op: str) -> None:
    names = tuple(map(Name, OPS[op].args))
    own = Enclosure(oracle.program(op), {})
    terms = GRADIENTS[op].rule(Number(Fraction(1)), call(op, *names), *names)
    rules = [Enclosure(Program(OPS[op].args, (), (), (term or Number(Fraction(0)),)), {}) for term in terms]
    for point in itertools.product((-1.0, 0.0, 0.5, 1.0, 6.0), repeat=len(names)):
        if op == "pow" and point[0] < 0:
            continue
        found = doubles(own(*point)[1:])
        expected = tuple(rule(*point)[0].hi for rule in rules)
        assert found == pytest.approx(expected, rel=1e-15, nan_ok=True), point


def test_two_numbers_that_no_precision_tells_apart_are_equal() -> None:
    assert doubles(at("where(x / 3 >= 1 / 3, x, 0)", 1.0)) == (1.0, 1.0)
    assert doubles(at("maximum(x / 3 * 3, x)", 0.1)) == (0.1, 1.0)
    assert doubles(at("relu(exp(log(x)) - x) + x", 0.7)) == (0.7, 1.0)
    assert doubles(at("where(exp(-x) > 0, x, 0)", 1e5)) == (1e5, 1.0)
    assert doubles(at("(-2) ** (5 / 3 * 3) + x", 0.0)) == (-32.0, 1.0)


def test_numbers_that_more_bits_tell_apart_are_not_equal() -> None:
    assert doubles(at("where(1 + y > 1, x, 0)", 1.0, 1e-300))[:2] == (1.0, 1.0)
    below_every_double = "where(exp(-1e6 - x / 3) > exp(-1e6 - x / 3 - y), x, 0)"
    assert doubles(at(below_every_double, 1.0, 1e-60))[:2] == (1.0, 1.0)


def test_the_branch_that_is_not_chosen_decides_nothing() -> None:
    assert doubles(at("where(x > 0, x, log(x))", 2.0)) == (2.0, 1.0)
    assert doubles(at("where(x > 0, log(x), 3 * x)", -2.0)) == (-6.0, 3.0)
    assert doubles(at("where(x > 0, where(log(x) > 0, 1, 2), x)", -2.0)) == (-2.0, 1.0)


# --- two doubles ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "x", "value", "slope"),
    [
        ("relu(x)", 2.0, 2.0, 1.0),
        ("relu(x)", -2.0, 0.0, 0.0),
        ("relu6(x + 3) / 6", 3.0, 1.0, 0.0),
        ("x * relu6(x + 3) / 6", 9.0, 9.0, 1.0),
        ("exp(x)", 0.0, 1.0, 1.0),
        ("tanh(x)", 0.0, 0.0, 1.0),
        ("sigmoid(x)", 0.0, 0.5, 0.25),
        ("sqrt(x)", 4.0, 2.0, 0.25),
        ("x ** 2", 3.0, 9.0, 6.0),
        ("1 / x", 4.0, 0.25, -0.0625),
        ("5e-324 * x", 1.0, 5e-324, 5e-324),
    ],
)
def test_an_exact_result_is_exact(formula: str, x: float, value: float, slope: float) -> None:
    assert at(formula, x) == (Real(value, 0.0), Real(slope, 0.0))


def test_the_first_double_is_the_nearest_one() -> None:
    above = math.nextafter(1.0, 2.0)
    assert at("x + y", 1.0, 2.0**-53)[0] == Real(1.0, 2.0**-53)  # the middle, to the even one
    assert at("x + y", above, 2.0**-53)[0] == Real(math.nextafter(above, 2.0), -(2.0**-53))
    assert at("1 + y + z / 3", 0.0, 2.0**-53, 2.0**-200)[0] == Real(above, -(2.0**-53))
    assert at("1 + y - z / 3", 0.0, 2.0**-53, 2.0**-200)[0] == Real(1.0, 2.0**-53)
    assert at("1 - y + z / 3", 0.0, 2.0**-54, 2.0**-200)[0] == Real(1.0, -(2.0**-54))
    least = 5e-324
    assert at("1.5 * x", least)[0] == at("1.5 * x + y * y", least, least)[0] == Real(2 * least, 0.0)
    assert at("1.5 * x - y * y", least, least)[0] == Real(least, 0.0)
    assert at("x / 2 - y * y", least, least)[0] == Real(0.0, 0.0)
    assert at("x / 2 + y * y / 3", least, least)[0] == Real(least, 0.0)


@pytest.mark.together
@pytest.mark.parametrize("formula", ["exp(x) - 1 - x", "sin(x) - x", "sqrt(1 + x) - 1 - x / 2"])
@pytest.mark.parametrize("x", [0.75, 1e-4, 1e-12, -1e-30, 1e-70])
def test_digits_that_cancel_are_found_again(formula: str, x: float) -> None:
    with mpmath.workdps(400):
        exact = eval(formula, {"x": mpmath.mpf(x), **vars(mpmath)})
        [value, _] = at(formula, x)
        assert abs(mpmath.mpf(value.hi) + mpmath.mpf(value.lo) - exact) <= abs(exact) * 2.0**-100


def test_what_is_below_every_double_keeps_its_sign() -> None:
    for formula, sign in (("x * exp(-x * x)", 1), ("-exp(-x)", -1), ("-exp(x) * 0", 1)):
        value = at(formula, 1e5)[0]
        assert (value.hi, math.copysign(1, value.hi), value.lo) == (0.0, sign, 0.0)
    assert math.copysign(1, at("x * ndtr(x)", -1e300)[0].hi) == -1


def test_what_is_above_every_double_is_infinite() -> None:
    assert at("x * x", 1e200) == (Real(math.inf, 0.0), Real(2e200, at("2 * x", 1e200)[0].lo))
    assert doubles(at("-exp(x)", 1e308)) == (-math.inf, -math.inf)
    assert at("x + y", 1.7976931348623157e308, 9e291)[0] == Real(1.7976931348623157e308, 9e291)
    assert at("x + y", 1.7976931348623157e308, 1e292)[0] == Real(math.inf, 0.0)


@pytest.mark.together
@pytest.mark.parametrize(
    "formula",
    ["log(x)", "sqrt(x)", "0 * log(x)", "relu(x) * log(x)", "log(x) - log(x)", "1 / (x + 1)", "x ** 0.5",
     "(x + 1) / (x + 1)", "sign(log(x))", "relu(x) / (x + 1)", "maximum(x, 1 / (x + 1))",
     "clamp(x, log(x), -3)", "(-x - 2) ** (x / 2)"],
)  # fmt: skip
def test_what_is_undefined_is_nan(formula: str) -> None:
    assert all(math.isnan(result.hi) and result.lo == 0 for result in at(formula, -1.0))


def test_a_pole_of_the_slope_leaves_the_value() -> None:
    for formula in ("sqrt(x)", "x ** 0.5"):
        value, slope = at(formula, 0.0)
        assert value == Real(0.0, 0.0)
        assert math.isnan(slope.hi)
    assert doubles(at("sqrt(x) * y", 0.0, 3.0))[::2] == (0.0, 0.0)
    assert at("sqrt(relu(x))", -1.0) == at("relu(x) ** 0.5", -1.0) == (Real(0.0, 0.0), Real(0.0, 0.0))


def test_what_is_not_finite_is_no_point() -> None:
    for x in (math.inf, -math.inf, math.nan):
        assert all(math.isnan(value) for value in doubles(at("relu(x)", x)))


# --- programs -------------------------------------------------------------------------------------------


def test_names_are_inputs_parameters_and_steps() -> None:
    whole = program("u * v + x", "x y", "a", u="x * a", v="u + y")
    found = Enclosure(whole, {"a": Fraction(1, 4)})(4.0, 2.0)
    assert doubles(found) == (1.0 * 3.0 + 4.0, 0.25 * 3.0 + 1.0 * 0.25 + 1.0, 1.0)


@pytest.mark.together
@pytest.mark.parametrize("name", by_module(sorted(LIBRARY)))
def test_a_spec_is_what_pytorch_computes_in_double(name: str) -> None:
    spec = library.load(ROOT / "specs" / f"{name}.yaml")
    whole = real(spec, library.Library(ROOT / "specs"))
    enclosure = Enclosure(whole, {param.name: Fraction(param.default) for param in spec.params})
    tensors = [t.requires_grad_() for t in smooth(name, 12)]
    y = LIBRARY[name].eager(*tensors)
    expected = [y, *torch.autograd.grad(y.sum(), tensors)]
    found = [doubles(enclosure(*point)) for point in zip(*(t.tolist() for t in tensors), strict=True)]
    for actual, exact in zip(zip(*found, strict=True), expected, strict=True):
        near = torch.tensor(actual, dtype=torch.float64)
        torch.testing.assert_close(near, exact.detach(), rtol=1e-6, atol=1e-8)


SMOOTH = ("exp", "tanh", "sigmoid", "softplus", "sin", "cos", "erf", "erfc", "ndtr", "gauss", "expm1",
          "square", "cube", "normal", "tanh_softplus", "sigmoid_slope", "neg", "exp2")  # fmt: skip


def terms() -> st.SearchStrategy[Term]:
    """Smooth terms in x and y that are defined everywhere."""
    given: list[Term] = [Name("x"), Name("y"), Number(Fraction(1, 3)), Number(Fraction(-5, 4))]
    leaves = st.sampled_from(given)

    def larger(parts: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
        one = st.builds(call, st.sampled_from(SMOOTH), parts)
        two = st.builds(call, st.sampled_from(("add", "sub", "mul")), parts, parts)
        positive = st.builds(lambda part: call("square", part) + 1, parts)
        root = st.builds(call, st.sampled_from(("log", "sqrt", "rsqrt", "reciprocal", "log2")), positive)
        return one | two | root | st.builds(call, st.just("div"), parts, positive)

    return st.recursive(leaves, larger, max_leaves=6)


def by_mpmath(term: Term, scope: dict[str, mpmath.mpf]) -> mpmath.mpf:
    match term:
        case Number(value):
            return mpmath.mpf(value.numerator) / value.denominator
        case Name(name):
            return scope[name]
        case Apply(op, args):
            return oracle.PRIMITIVES[op].value(*(by_mpmath(arg, scope) for arg in args))
    raise AssertionError(term)


@settings(max_examples=examples(300))
@given(terms(), st.floats(-3, 3), st.floats(-3, 3))
def test_a_derivative_is_what_a_difference_quotient_tends_to(term: Term, x: float, y: float) -> None:
    found = Enclosure(Program(("x", "y"), (), (), (term,)), {})(x, y)
    with mpmath.workdps(90):
        step, point = mpmath.mpf(10) ** -30, {"x": mpmath.mpf(x), "y": mpmath.mpf(y)}
        value = by_mpmath(term, point)
        assume(abs(value) < 1e6)
        assert abs(found[0].hi + mpmath.mpf(found[0].lo) - value) <= 1e-30 * (1e-40 + abs(value))
        for name, slope in zip("xy", found[1:], strict=True):
            ahead = by_mpmath(term, point | {name: point[name] + step})
            behind = by_mpmath(term, point | {name: point[name] - step})
            quotient = (ahead - behind) / (2 * step)
            gap = abs(slope.hi + mpmath.mpf(slope.lo) - quotient)
            assert gap <= 1e-29 * abs(quotient) + mpmath.mpf(10) ** -35


# --- ends -----------------------------------------------------------------------------------------------

INF = math.inf
LIMITS = {
    ("x * sigmoid(x)", -INF): (0.0, 0.0),
    ("x * sigmoid(x)", INF): (INF, 1.0),
    ("x / (1 + abs(x))", INF): (1.0, 0.0),
    ("x / (1 + abs(x))", -INF): (-1.0, 0.0),
    ("x * tanh(softplus(x))", -INF): (0.0, 0.0),
    ("x * tanh(exp(x))", INF): (INF, 1.0),
    ("x * ndtr(x)", -INF): (0.0, 0.0),
    ("exp(x)", INF): (INF, INF),
    ("exp(x)", -INF): (0.0, 0.0),
    ("sin(x)", INF): (math.nan, math.nan),
    ("x * sin(x)", INF): (math.nan, math.nan),
    ("cos(2 * pi * x / 3)", INF): (math.nan, math.nan),  # -1/2 at every even power of 2
    ("cos(2 * pi * x)", INF): (math.nan, math.nan),  # 1 at every whole number
    ("sin(x) / x", INF): (0.0, 0.0),
    ("x + square(sin(x))", INF): (INF, math.nan),
    ("log(x)", INF): (INF, 0.0),
    ("log(x)", -INF): (math.nan, math.nan),
    ("sqrt(x) / 3 - x", INF): (-INF, -1.0),
    ("1 / sqrt(abs(x))", -INF): (0.0, 0.0),
    ("tanh(x) / 3", INF): (1 / 3, 0.0),
    ("relu(x)", -INF): (0.0, 0.0),
    ("relu(x)", 3.0): (3.0, 1.0),
}


@pytest.mark.together
@pytest.mark.parametrize(("formula", "x"), LIMITS)
def test_a_limit_is_found_where_there_is_one(formula: str, x: float) -> None:
    found = Enclosure(program(formula), {}).limit(x)
    assert doubles(found) == pytest.approx(LIMITS[formula, x], rel=0, nan_ok=True)


def test_a_limit_is_that_of_one_input() -> None:
    with pytest.raises(ValueError, match="one input"):
        Enclosure(program("x * y", "x y"), {}).limit(INF, 1.0)


HOSTILE = (
    "exp(x)", "exp(exp(x))", "exp(-exp(x))", "sin(x)", "sin(exp(x))", "cos(x * x * x)", "x ** 1e308",
    "x ** x", "x * tanh(exp(x))", "x * tanh(softplus(x))", "erfc(x)", "x * ndtr(x)", "sigmoid(exp(x))",
    "log1p(exp(x))", "exp(x) - exp(x + 1e-9)", "erf(exp(x)) * cos(exp(exp(x)))", "x + square(sin(x))",
    "1 / (1 + exp(exp(-x)))", "log(log(abs(x)))", "expm1(cube(x)) * log2(abs(x))", "rsqrt(exp(-abs(x)))",
    "exp2(x) * exp2(-x)", "(-2) ** (x * x * x)", "(-x) ** cube(cube(cube(cube(cube(cube(x))))))",
    "2 ** " + 24 * "cube(" + "x" + 24 * ")",
)  # fmt: skip


@pytest.mark.together
@pytest.mark.parametrize("formula", HOSTILE)
def test_no_point_takes_many_steps(formula: str) -> None:
    """Of no more than the 4,096 bits that an enclosure is made with at last."""
    enclosure = Enclosure(program(formula), {})
    enclosure(1.5)
    for x in (0.0, 5e-324, 1e-300, 700.0, 1e5, 1e100, 1.7976931348623157e308):
        for signed in (x, -x):
            with budget(1000):
                assert len(enclosure(signed)) == 2
            assert flint.ctx.prec <= PRECISIONS[-1] == 4096


def test_huge_numbers_have_values() -> None:
    assert doubles(at("sin(x)", 1e308)) == pytest.approx(
        (0.4533964905016491, -0.8913089376870335), rel=1e-15
    )
    assert doubles(at("exp(-exp(x))", 1e308))[0] == 0.0
    assert doubles(at("x * tanh(exp(x))", 1e308)) == (1e308, 1.0)
    assert doubles(at("exp2(x) * exp2(-x)", 1e308))[0] == 1.0
    assert all(math.isnan(value) for value in doubles(at("sin(exp(x))", 1e308)))


# --- many points ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2])
def test_many_points_are_so_many_calls(jobs: int) -> None:
    whole, params = program("x * sigmoid(a * y)", "x y", "a"), {"a": Fraction(17, 10)}
    points = [(i / 512, 1.0 - i / 1024) for i in range(CHUNK + 3)]
    done: list[int] = []
    columns = values(whole, params, points, jobs, done.append)
    assert sum(done) == len(points)
    assert len(columns) == 3
    assert all(
        isinstance(half, array) and len(half) == len(points) for column in columns for half in column
    )
    enclosure = Enclosure(whole, params)
    for k in (0, 1, 700, CHUNK - 1, CHUNK, CHUNK + 2):
        assert tuple(Real(hi[k], lo[k]) for hi, lo in columns) == enclosure(*points[k])


def test_no_points_are_none() -> None:
    assert values(program("x * 2"), {}, []) == [(array("d"), array("d"))] * 2
