"""Estimated errors of kernels: of operations, of chains, and of the library beside its certificates."""

import math

import pytest
from conftest import ROOT, Workshop, library_spec
from kernels import by_module

from fusegen.codegen.printers.methods import method_types
from fusegen.compiler.pipeline import Compiled
from fusegen.core import method
from fusegen.core.budget import FLOAT_ENOUGH
from fusegen.core.cubic import UNIFORM, fits
from fusegen.core.facts import Roundoff
from fusegen.core.interval import Point
from fusegen.core.ir import Body, Call, Const, Expr, Kernel, Let, Math, Ref, Word
from fusegen.core.method import Grid, Pass, Piecewise
from fusegen.core.targets import Device
from fusegen.evidence.certify import certificate_state
from fusegen.evidence.certify.certificate import SUFFIX
from fusegen.numerics.grids import uniform_grid
from fusegen.numerics.roundoff import evaluated, function, roundoff
from fusegen.numerics.roundoff.graph import DOUBLE, FLOAT, Range
from fusegen.numerics.sample import sampled
from fusegen.project.build import compiled_file

X, A = Ref("x"), Ref("a")


def call(op: str, *args: Expr) -> Call:
    return Call(op, args)


def of(
    result: Expr, *lets: Let, double: Expr | None = None, pieced: bool = False, within: Range = FLOAT
) -> Roundoff:
    """The roundoff of a function of x and of a parameter a, which is 3."""
    single, exact = (
        Kernel("f", Device.CPU, kind, ("x",), ("a",), lets, (value,))
        for kind, value in ((Math.FLOAT, result), (Math.DOUBLE, double or result))
    )
    params = {"a": 3.0}
    fitted = function(exact, params)
    pieces = uniform_grid(fitted) if pieced else None

    def reals(given: Point) -> list[float]:
        kernel = Kernel("f", Device.CPU, Math.DOUBLE, ("x",), ("a",), lets, (double or result,))
        return function(kernel, params)([given["x"]])

    sample = sampled(("x",), "", params, {}, reals)
    holds = fits(pieces, fitted, UNIFORM) if pieces else (lambda x: False)
    return roundoff(single, sample, params, given=lambda at: holds(at["x"]), within=within)


PLUS_ONE = call("add", X, Const(1.0))
SQUARE = call("mul", X, X)
TINY = call("mul", call("mul", X, Const(2.0**-100)), Const(2.0**-100))
EXACT = {
    "a selection": call("clamp", X, Const(-1.0), Const(2.0)),
    "a power of two times": call("mul", call("abs", X), Const(0.25)),
    "by a power of two": call("div", call("neg", X), Const(0.5)),
    "1": call("tanh", call("maximum", X, Const(20.0))),
    "what it takes": call("x_sigmoid", call("clamp", X, Const(80.0), Const(90.0)), Const(90.0)),
    "words": call("narrow", Call("add", (call("relu", X), Const(0.0)), Word.DOUBLE, Body.DOUBLE_WORD)),
}
ERRS: dict[str, tuple[Expr, float, str]] = {
    "a rounding": (call("mul", X, A), 0.5, "mul"),
    "two": (
        call("mul", call("mul", X, A), A),
        1.5,
        "mul",
    ),  # the first is magnified from one power of two to
    "what is the same for every input has the error that it has": (
        call("mul", X, call("reciprocal", A)),
        0.5 + 0.5,
        "mul",
    ),
    "a function": (Call("sigmoid", (X,), body=Body.NEAR), 1.4, "sigmoid"),
    "a better one": (call("tanh", X), 0.8, "tanh"),
    "what a function takes is magnified": (call("tanh", call("mul", X, A)), 1.5, "mul"),
    "two words, when they are stored": (call("softplus", X), 1.0, "softplus"),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_operations_have_no_error(name: str) -> None:
    assert of(EXACT[name]).ulp < 0.51  # in the last place of subnormals


@pytest.mark.parametrize("name", ERRS)
def test_the_error_of_a_result_is_the_sum_of_its_roundings(name: str) -> None:
    result, ulp, by = ERRS[name]
    found = of(result)
    assert ulp - 0.1 <= found.ulp <= 2 * ulp
    assert found.by == by


def test_a_sum_of_what_lies_on_one_grid_is_exact() -> None:
    """Less 2, only an x rounds whose last place is finer than the difference's."""
    assert of(call("sub", call("clamp", X, Const(2.0), Const(4.0)), Const(2.0))).ulp == 0
    assert of(call("sub", call("clamp", X, Const(0.1), Const(4.0)), Const(2.0))).ulp == 0.5


def test_what_cancels_is_magnified() -> None:
    found = of(call("sub", PLUS_ONE, Const(1.0)))
    assert found.ulp > 1e6
    assert abs(found.at["x"]) < 1e-6


def test_next_to_a_zero_errors_count_in_ulps_of_the_exact_result() -> None:
    for shifted in (
        call("sub", call("mul", X, A), Const(3.5)),
        call("fma", call("add", X, Const(0.1)), A, Const(-3.5)),
        call("product_plus", call("mul", X, A), A, Const(0.5), Const(-5.26)),
        call("scaled", call("sub", call("mul", X, A), Const(3.5)), Const(0.7), Const(2.0**-30)),
    ):
        assert of(shifted).ulp > 16


def test_a_function_of_what_is_next_to_0_moves_with_it() -> None:
    """exp(u) is 1 for every double u next to 0, but not where u has cancelled."""
    x = call("clamp", X, Const(-(2.0**-40)), Const(2.0**-40))
    found = of(call("exp", call("sub", call("add", x, Const(1.0)), Const(1.0))))
    assert found.ulp == pytest.approx(0.5, rel=0.01)
    assert found.by == "add"


def test_what_a_piece_gives_does_not_count() -> None:
    """From 64 on, where there is none, it does."""
    magnified = call("exp", call("mul", X, call("clamp", X, Const(-5.0), Const(5.0))))
    assert of(magnified).ulp > 20
    assert of(magnified, pieced=True).ulp < 4
    assert of(call("sub", PLUS_ONE, Const(1.0)), pieced=True).ulp < 2
    far = of(call("exp", call("div", call("clamp", X, Const(-80.0), Const(80.0)), A)), pieced=True)
    assert far.ulp > 5
    assert abs(far.at["x"]) > 64


def test_a_value_too_large_for_a_float_is_noticed() -> None:
    assert of(call("sqrt", SQUARE)).ulp == math.inf
    found = of(call("div", X, call("sqrt", call("add", SQUARE, Const(1.0)))))
    assert found.ulp > 1e6
    assert found.by != "sqrt" or abs(found.at["x"]) > 1e18


def test_a_choice_by_what_underflows_is_noticed() -> None:
    choice = call("where", call("gt", TINY, Const(0.0)), X, Const(0.0))
    assert of(choice).ulp > 1e6


def test_a_number_that_is_no_float_errs() -> None:
    rounded = call("mul", X, Const(0.10000000149011612))
    assert 0.5 < of(rounded, double=call("mul", X, Const(0.1))).ulp < 1.1


def test_an_operation_used_twice_counts_by_what_both_do() -> None:
    """In u - u nothing is left of what u rounds."""
    u = Let("u", call("mul", X, A))
    assert of(call("sub", call("mul", Ref("u"), Const(2.0)), Ref("u")), u).ulp < 2


def test_an_expression_is_evaluated_by_names() -> None:
    assert evaluated(call("add", X, call("mul", A, Const(2.0))), {"x": 1.5, "a": -4.0}) == -6.5


OVERFLOWS = "pade_tanh"  # in float: the library's example of the octave grid
# by octaves too: a square next to its zero, on the CPU a chain next to that of its gradient
IN_OCTAVES = {OVERFLOWS, "quick_tanh", "tanh_gelu_mish_silu_sigmoid"}
LIBRARY = sorted({path.stem for path in (ROOT / "specs").glob("*.yaml")} - IN_OCTAVES)


def certified(name: str, device: Device) -> list[tuple[float, float]]:
    """The largest errors of value and gradients in float32: ours, and eager's; none without evidence."""
    evidence = certificate_state.read(ROOT / "generated" / f"{name}{SUFFIX}").evidence(
        device.name, "float32"
    )
    return [(o.given.ulp, o.eager.ulp) for o in evidence.outputs if o.eager] if evidence else []


@pytest.mark.few(8)
@pytest.mark.parametrize("device", list(Device))
@pytest.mark.parametrize("name", by_module(LIBRARY))
def test_the_library_is_trusted_and_what_was_found_is_no_larger_by_much(name: str, device: Device) -> None:
    compiled = library_spec(name)
    for which in Pass:
        assert compiled.plan[which, device, "float32"] in (
            method.FLOAT,
            method.SINGLE_RESULT,
            Piecewise(Grid.UNIFORM, method.FLOAT),
            method.Segmented(method.FLOAT),
        )
    expected = []
    for which, facts in zip(Pass, compiled.facts, strict=True):
        if device in facts.estimates:
            error = facts.estimates[device].single
            eager = compiled.declared.formula.eager_error(device, which)
            assert error.ulp <= max(FLOAT_ENOUGH[device], eager.ulp + 1)
            expected.append(error)
    if expected and (found := certified(name, device)):
        value, *gradients = found
        for (ours, eagers), error in ((value, expected[0]), *((each, expected[1]) for each in gradients)):
            assert ours <= max(error.ulp + 2.5, eagers)


@pytest.mark.parametrize("device", list(Device))
def test_what_overflows_in_float_is_fitted_in_double(device: Device) -> None:
    """The value overflows; in float the gradient has an estimated error of 10.7 ulp."""
    plan = library_spec(OVERFLOWS).plan
    fitted = Piecewise(Grid.OCTAVES, method.DOUBLE)
    assert [plan[which, device, "float32"] for which in Pass] == [fitted, fitted]


def of_chain(workshop: Workshop, body: str) -> Compiled:
    return compiled_file(workshop.spec("some", body))


LONG = "[x * 1e37 * 1e-37, softsign, silu, mish, quick_gelu, tanhshrink"  # beyond float's range on the way


FORMULA, EVEN, OCTAVES = "Formula<float>", "PiecewiseUniform", "PiecewiseOctaves"
AT_DEFAULTS = "AtDefaults<PiecewiseOctaves, Widened<PlainDouble>>"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("body", "cpu", "cuda"),
    [
        ("chain: [gelu, mish]", (FORMULA,) * 2, (EVEN,) * 2),
        ("chain: [silu, hardswish]", (FORMULA,) * 2, (FORMULA, EVEN)),
        ("chain: [gelu_tanh, squared_relu, tanh]", (FORMULA, OCTAVES), (EVEN,) * 2),
        ("chain: [softsign, silu, mish, quick_gelu, tanhshrink]", (OCTAVES,) * 2, (EVEN,) * 2),
        (f"chain: {LONG}]", (OCTAVES,) * 2, (OCTAVES,) * 2),
        (f"params: {{a: 0.5}}\nchain: {LONG}, a * x]", ("Formula<double>",) * 2, (AT_DEFAULTS,) * 2),
        (
            f"inputs: {{x: {{}}, y: {{}}}}\nchain: {LONG}, x * y]",
            (FORMULA,) * 2,
            ("PiecewiseSegments<float>", FORMULA),
        ),
        (  # 2 x overflows where x is next to the largest float, and eager's operations do not
            "params: {b: 1.0, g: 0.5}\nformula: (1 + tanh(b * x)) * g * x",
            (FORMULA,) * 2,
            (FORMULA, AT_DEFAULTS),
        ),
        (  # on CUDA eager multiplies by 1 / a², which is 100, and float would divide by a rounded a²
            "params: {a: 0.1}\nformula: exp(-0.5 * x**2 / a**2)",
            (FORMULA,) * 2,
            (AT_DEFAULTS,) * 2,
        ),
        (
            "inputs: {x: {}, b: {}, r: {}}\nchain: [x + b, silu, x * 0.5, x + r]",
            (FORMULA,) * 2,
            (FORMULA,) * 2,
        ),
        (f"dtypes: [float64]\nchain: {LONG}]", (FORMULA,) * 2, (FORMULA,) * 2),
        (f"dtypes: [float32]\nchain: {LONG}]", (OCTAVES,) * 2, (OCTAVES,) * 2),
        (f"numerics: eager\nchain: {LONG}]", (FORMULA,) * 2, (FORMULA,) * 2),
        ("formula: clamp(x + 3, 0, 6) / 6", (FORMULA,) * 2, (FORMULA,) * 2),
    ],
)
def test_what_is_not_trusted_is_left_to_double(
    body: str, cpu: tuple[str, str], cuda: tuple[str, str], workshop: Workshop
) -> None:
    plan = of_chain(workshop, body).plan
    for device, expected in {Device.CPU: cpu, Device.CUDA: cuda}.items():
        for which, wanted in zip(Pass, expected, strict=True):
            found = method_types(plan.of(which, device), device)
            assert found.endswith(f", {wanted}, Formula<double>>"), (device, which)


def test_without_floats_range_nothing_on_the_way_is_too_large() -> None:
    up, down = (call("mul", call("mul", X, Const(2.0**e)), Const(2.0**-e)) for e in (100, -100))
    assert [of(result).ulp > 1e6 for result in (up, down)] == [True, True]
    assert [of(result, within=DOUBLE).ulp < 0.51 for result in (up, down)] == [True, True]


def test_an_interval_between_all_sizes_is_tried_within(workshop: Workshop) -> None:
    compiled = of_chain(workshop, "assume: {x: '[5.0001, 5.0002]'}\nformula: x * sigmoid(x)")
    error = compiled.facts.forward.estimates[Device.CPU].single
    assert error.at["x"] == pytest.approx(5.0001, rel=1e-6)
    assert error.ulp < 2


def test_a_gradient_of_the_output_is_tried_where_the_input_is_assumed(workshop: Workshop) -> None:
    compiled = of_chain(workshop, "assume: {x: '[1, 5]'}\nformula: exp(x)")
    error = compiled.facts.backward.estimates[Device.CPU].single
    assert 1 <= error.at["output"] <= 5
