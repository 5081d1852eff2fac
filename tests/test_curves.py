"""Which passes are computed by curves, their estimated errors, and what is said of them."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from conftest import ROOT, Workshop

from fusegen.compiler.curves import _small, keeps_bound
from fusegen.compiler.pipeline import Compiled
from fusegen.core.cubic import SEGMENT
from fusegen.core.interval import Interval
from fusegen.core.ir import Call, Const, Kernel, Let, Math, Ref, Word, calls
from fusegen.core.method import FLOAT, Formula, Pass, Segmented, Variant
from fusegen.core.ops.double_word import CURVE
from fusegen.core.targets import Device
from fusegen.evidence.show import stage
from fusegen.language.library import load
from fusegen.numerics.roundoff import curves, inside, roundoff, steps
from fusegen.numerics.roundoff import errors as errors_of
from fusegen.numerics.sample import Sample
from fusegen.project import build
from fusegen.schedule.sentences import told

CHANNEL = "inputs: {x: {shape: [2, 8, 4, 4]}, b: {shape: [8, 1, 1]}}\n"
FULL = "inputs: {x: {shape: [2, 8]}, b: {shape: [2, 8]}}\n"
THREE = "inputs: {x: {shape: [2, 8, 4, 4]}, b: {shape: [8, 1, 1]}, r: {shape: [2, 8, 4, 4]}}\n"
TWO_OF_CHANNELS = "inputs: {x: {shape: [2, 8, 4, 4]}, b: {shape: [8, 1, 1]}, s: {shape: [8, 1, 1]}}\n"
BIAS_GELU = f"{CHANNEL}formula: gelu(x + b)\n"
BY_CURVES = Segmented(FLOAT)


def made(workshop: Workshop, body: str) -> Compiled:
    return build.compiled_file(workshop.spec("some", body))


METHODS: dict[str, tuple[str, tuple[object, object]]] = {
    "a function after a bias": (BIAS_GELU, (BY_CURVES, BY_CURVES)),
    "of tensors of one size it hides behind the memory": (f"{FULL}formula: gelu(x + b)\n", (FLOAT, FLOAT)),
    "arithmetic": (f"{CHANNEL}formula: relu(x + b)\n", (FLOAT, FLOAT)),
    "a chain too long for tensors of one size": (
        f"{FULL}formula: sigmoid(gelu(x) * b)\n",
        (BY_CURVES, BY_CURVES),
    ),
    "what errs by less than twice eager's error": (
        f"{THREE}formula: silu(x + b) * 0.5 + r\n",
        (FLOAT, FLOAT),
    ),
    "sines have too many zeros": (f"{CHANNEL}formula: square(sin(x * b)) * 2\n", (FLOAT, FLOAT)),
    "scalars are not fitted": (
        "params: {a: 0.5}\n" + CHANNEL + "formula: gelu(x + b) * a\n",
        (FLOAT, FLOAT),
    ),
    "one tensor": ("formula: gelu(x)\n", (FLOAT, FLOAT)),
    "eager's operations": (f"numerics: eager\n{BIAS_GELU}", (FLOAT, FLOAT)),
    "behind a function that takes fewer instructions than a curve": (
        f"{TWO_OF_CHANNELS}formula: sigmoid(tanh(x * b) * s)\n",
        (BY_CURVES, BY_CURVES),
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", METHODS)
def test_a_pass_has_the_method(name: str, workshop: Workshop) -> None:
    body, expected = METHODS[name]
    plan = made(workshop, body).plan
    assert tuple(plan[which, Device.CUDA, "float32"] for which in Pass) == expected
    for which in Pass:
        for dtype in ("float16", "bfloat16", "float64"):
            assert not isinstance(plan[which, Device.CUDA, dtype], Segmented)
        assert isinstance(plan[which, Device.CPU, "float32"], Formula)


@pytest.mark.parametrize(
    ("name", "small"),
    [
        ("kernelbench/conv_transpose3d_residual_hardswish", {"conv_transpose_bias"}),
        ("swish", {"beta"}),
        ("geglu", set()),
    ],
)
def test_an_element_of_a_small_tensor_serves_many_outputs(name: str, small: set[str]) -> None:
    """A residual of a transposed convolution's output is larger than its input."""
    assert _small(load(ROOT / "specs" / f"{name}.yaml")) == small


def test_without_float32_there_are_no_curves(workshop: Workshop) -> None:
    of = made(workshop, f"dtypes: [float16, float64]\n{BIAS_GELU}")
    assert [of.facts[which].curves for which in Pass] == [None, None]


@pytest.mark.full
def test_what_is_said_of_curves_is_the_same_everywhere(workshop: Workshop) -> None:
    sentence = (
        "float32: piecewise cubics for functions of one value; where no piece fits, the formula in float."
    )
    path = workshop.spec("some", BIAS_GELU)
    of = build.compiled_file(path)
    assert sentence in told(of.plan.of(Pass.FORWARD, Device.CUDA))
    assert f"forward on cuda: {sentence}" in stage(path, "plan")
    comment = " ".join(line.removeprefix("// ") for line in stage(path, "cuda").splitlines())
    assert comment.count(sentence) == 1
    assert "  curves = 1\n" in stage(path, "facts")


def test_the_type_of_a_kernel_says_its_curves(workshop: Workshop) -> None:
    text = stage(workshop.spec("some", BIAS_GELU), "cuda")
    assert "FUSEGEN_CURVE(Curve0, 1 / 128.0f, -8193, 770, times_ndtr(u))\nFUSEGEN_CURVE(Curve1, " in text
    assert "using Methods = ByWidth<Formula<FastFloat>, PiecewiseSegments<float>, Formula<double>>;" in text
    assert "FUSEGEN_BY_CURVES(out[0] = some_forward_by_curves(in[0], in[1], curves), Curve0);" in text
    assert "  return curve<0>(curves, gelu_x);" in text
    assert "piecewise_segments.cuh" not in stage(workshop.spec("some", BIAS_GELU), "cpu")


@pytest.mark.full
@pytest.mark.parametrize("name", ["u", "curve", "curves"])
def test_an_input_and_a_step_may_have_the_names_of_arguments(name: str, workshop: Workshop) -> None:
    """Those of a function of curves, and of a curve."""
    inputs = CHANNEL.replace("b:", f"{name}:")
    text = stage(workshop.spec("some", f"{inputs}formula: sigmoid(gelu(x + {name}))\n"), "cuda")
    given = name if name == "u" else f"{name}_V"
    assert f"some_forward_by_curves(float x, float {given}, CURVES& curves) {{" in text
    inputs, step = CHANNEL, f"where: {{{name}: gelu(x + b)}}\nformula: silu({name})\n"
    text = stage(workshop.spec("some", f"{inputs}{step}"), "cuda")
    argument = "u1" if name == "u" else "u"
    assert f"some_curve0(double {argument}) {{\n" in text
    assert f"// Curve0: {name} · sigmoid({name}),  {name} = {argument} Φ({argument})\n" in text
    assert ", some_curve0(u))\n" in text


def test_the_argument_of_a_curve_keeps_what_a_sum_rounds(workshop: Workshop) -> None:
    found = made(workshop, BIAS_GELU).facts.forward.curves
    assert found is not None
    [argument] = [let for let in found.kernel.lets if let.name == "gelu_x"]
    assert argument.word is Word.DOUBLE
    assert [call.op for call in calls(found.kernel)] == ["add", CURVE]
    [curve] = found.curves
    assert (curve.step, curve.within.high) == (1 / 128, float("inf"))
    assert curve.low * curve.step == curve.within.low


def test_an_estimate_is_within_the_bound(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    of = made(workshop, BIAS_GELU)
    found = of.facts.forward.curves
    assert found is not None
    against = of.declared.formula, of.kernels[Pass.FORWARD, Device.CUDA, Variant.FLOAT]
    assert keeps_bound(found, *against)
    monkeypatch.setattr(curves, "SEGMENT", replace(SEGMENT, most=1e9))
    assert not keeps_bound(found, *against)


@pytest.mark.full
def test_pieces_that_would_err_by_more_than_the_bound_are_not_taken(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "SEGMENT", replace(SEGMENT, most=1e9))
    of = made(workshop, BIAS_GELU)
    assert [of.facts[which].curves for which in Pass] == [None, None]


X = Ref("x")
SQUARE = Call("mul", (X, X))


def kernel(*lets: Let) -> Kernel:
    return Kernel("some", Device.CUDA, Math.FLOAT, ("x",), (), lets, (Ref(lets[-1].name),))


@pytest.mark.parametrize(("fitted", "expected"), [({}, 0.5), ({"y": 1.25}, 1.25), ({"y": 0.0}, 0.0)])
def test_a_step_that_polynomials_give_errs_by_what_is_said(
    fitted: dict[str, float], expected: float
) -> None:
    sample = Sample(({"x": 1.1},), ((1.1 * 1.1,),))
    of = kernel(Let("y", SQUARE))
    assert roundoff(of, sample, {}, fitted=fitted).ulp == pytest.approx(expected, abs=1e-6)


def test_the_errors_of_a_step_may_differ_by_point() -> None:
    points = ({"x": 1.1}, {"x": 1.2})
    sample = Sample(points, tuple((point["x"] ** 2,) for point in points))
    fitted = {"y": np.array([1.25, 2.5])}
    [[first, second]] = errors_of(kernel(Let("y", SQUARE)), sample, {}, fitted=fitted).ulp
    assert (first, second) == pytest.approx((1.25, 2.5), abs=1e-6)


def test_steps_have_values_in_double_that_lie_in_intervals() -> None:
    of = kernel(Let("y", SQUARE), Let("z", Call("add", (Ref("y"), Const(1.0)))))
    found = steps(of, [{"x": x} for x in (1.0, 3.0, 2.0**-99)])
    assert {name: column.tolist() for name, column in found.items()} == {
        "y": [1.0, 9.0, 2.0**-198],
        "z": [2.0, 10.0, 1.0],
    }
    assert inside(found["y"], Interval(0.5, 1.0), Interval(8.0, math.inf)).tolist() == [1.0, 1.0, 0.0]
    assert inside(found["y"]).tolist() == [0.0, 0.0, 0.0]


ZERO = -0.7517915  # of the derivative of gelu


@pytest.mark.full
def test_next_to_a_zero_a_curve_is_charged_for_another_polynomial(workshop: Workshop) -> None:
    """Where pieces hold next to a zero, as those of gelu do, it is not."""
    facts = made(workshop, BIAS_GELU).facts
    assert facts.forward.curves is not None
    assert facts.backward.curves is not None
    [value], [slope] = facts.forward.curves.curves, facts.backward.curves.curves
    [around] = slope.zeros
    assert value.zeros == ()
    assert around.low < ZERO - 4 * slope.step
    assert ZERO + 4 * slope.step < around.high
    assert around.high - around.low <= 11 * slope.step


def test_estimates_charge_what_the_kernel_accepts() -> None:
    header = (ROOT / "fusegen/runtime/include/cuda/piecewise_segments.cuh").read_text(encoding="utf-8")
    [found] = re.findall(r"constexpr double MOST_ULP = ([\d.]+), MOST_ULP_AROUND_ZERO = ([\d.]+);", header)
    assert tuple(map(float, found)) == (SEGMENT.most, curves.NEXT_TO_ZERO)
    accepted = re.findall(r"curve_holds<C>\((\w+), [^;]*?, (MOST\w+)\)", header)
    assert set(accepted) == {
        ("found", "MOST_ULP"),
        ("piece", "MOST_ULP"),
        ("other", "MOST_ULP_AROUND_ZERO"),
    }


@pytest.mark.full
def test_no_spec_takes_long(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most `TRIED` segments of a pass are fitted; equal ones are one."""
    from fusegen.compiler.curves import TRIED

    fitted: list[object] = []
    monkeypatch.setattr("fusegen.compiler.curves._curve", lambda segment: fitted.append(segment))
    terms = " + ".join(f"sigmoid(sigmoid(x + {k} * b) - {k})" for k in range(TRIED + 4))
    made(workshop, f"{CHANNEL}formula: {terms}\n")
    assert len(fitted) == 2 * TRIED
