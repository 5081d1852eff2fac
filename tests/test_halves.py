"""16-bit results of functions that double alone would lose: next to 0 and far out series take its place."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from elements import Elements, Formula
from parsed import spec_file
from verdicts import results, wrong

from fusegen.compiler.halves import HALVES, Several, corrected, fitted
from fusegen.compiler.missed_contracts import misses
from fusegen.compiler.pipeline import Compiled
from fusegen.core.method import DOUBLE, FAST, FLOAT, PLAIN, SERIES, Arithmetic, Pass, Table, Variant
from fusegen.core.targets import Device
from fusegen.core.term import Name, Program, call
from fusegen.lower.collapsed import collapsed
from fusegen.numerics.reals import Reals
from fusegen.project import build
from fusegen.project.spec_warnings import contract_warnings

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
LIMITS = [2.0**16, 2.0**128]


def every(dtype: torch.dtype) -> torch.Tensor:
    """All numbers of a 16-bit type that are finite, in their order."""
    found = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    return found[found.isfinite()].double().sort().values


@pytest.mark.parametrize("name", DTYPES)
def test_places_are_in_the_order_of_a_type(name: str) -> None:
    numbers = every(DTYPES[name])
    numbers = numbers[[True, *(numbers.diff() > 0).tolist()]]  # of two zeros one
    places = torch.from_numpy(HALVES[name].places(numbers.numpy()))
    assert bool((places.diff() == 1).all())
    between = numbers[:-1] + numbers.diff() * (0.5 + 2.0**-8)
    rounded = torch.from_numpy(HALVES[name].places(between.numpy()))
    expected = torch.from_numpy(HALVES[name].places(between.float().to(DTYPES[name]).double().numpy()))
    assert torch.equal(rounded, expected)


@pytest.mark.parametrize("name", DTYPES)
def test_the_sample_has_numbers_of_every_binade(name: str) -> None:
    sample = torch.from_numpy(HALVES[name].sample())
    assert torch.equal(sample.to(DTYPES[name]).double(), sample)  # all are of the type
    numbers = every(DTYPES[name])
    _, binades = torch.frexp(numbers[numbers != 0])
    assert set(torch.frexp(sample)[1].tolist()) == set(binades.tolist())
    assert torch.equal(sample, -sample.flip(0))


X = Name("x")
FUNCTIONS = {  # the inputs that double misses, the function, and a few of its inputs there
    "even next to 0": ([1e-8, -1e-8], 1 - call("cos", X)),
    "odd next to 0": ([1e-6, -1e-6], X - call("sin", X)),
    "of one side only": ([1e-8], call("exp", call("sqrt", X)) - 1 - call("sqrt", X)),
    "a half power": ([1e16], call("sqrt", X + 1) - call("sqrt", X)),
    "of another sign on each side": ([1e20, -1e20], X / call("sqrt", 1 + X * X)),
    "a quotient of what overflows": ([30.0, 1e30], call("exp", X * X) * call("erfc", X)),
    "constant far out": ([800.0, 1e20], 2 / (call("exp", X) + call("exp", -X))),
    "infinite far out": ([-800.0], call("exp", -X) - X),
    "falling as an exponential": ([-40.0], call("log", 1 + call("exp", X))),
    "next to the largest number": ([1.5 * 2.0**127], X + 1 / X),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_series_are_near_the_function(case: str) -> None:
    missed, term = FUNCTIONS[case]
    program = Program(("x",), (), (), (term,))
    exact = Reals(program)
    found = fitted(missed, lambda x: exact({"x": x})[0], LIMITS)
    assert found
    own = Reals(corrected(program, "x", found))
    for x in missed:
        for at in (x, 1.1 * x, x * 1.5**3 if abs(x) > 1 else x / 1.5**3):
            [expected], [given] = exact({"x": at}), own({"x": at})
            both = [min(max(y, -LIMITS[1]), LIMITS[1]) for y in (given, expected)]
            assert both[0] == pytest.approx(both[1], rel=2.0**-14, abs=2.0**-134)
            assert any(series.side.holds(at) for series in found)


def test_a_function_without_a_series_has_none() -> None:
    exact = Reals(Program(("x",), (), (), (call("sin", 1 / X),)))
    assert fitted([1e-3], lambda x: exact({"x": x})[0], LIMITS) is None


def of(formula: str, folder: Path, fields: str = "", inputs: str = "x: {}") -> Compiled:
    body = f'inputs: {{{inputs}}}\nformula: "{formula}"\n{fields}'
    return build.compiled_file(spec_file(folder, "some", body))


@pytest.mark.full
def test_what_double_loses_is_given_by_series(tmp_path: Path) -> None:
    found = of("x / (1 - x * exp(-(x + exp(x))))", tmp_path)
    assert found.facts.backward.missed.series
    assert not found.facts.backward.missed.left
    assert found.plan[Pass.BACKWARD, Device.CUDA, "bfloat16"] == Table(Arithmetic.SERIES)
    assert found.plan[Pass.BACKWARD, Device.CPU, "float16"] == SERIES
    assert found.plan[Pass.BACKWARD, Device.CPU, "float64"] == DOUBLE


@pytest.mark.full
@pytest.mark.parametrize(
    ("formula", "which"), [("x - sin(x)", Pass.FORWARD), ("sin(x) / x", Pass.BACKWARD)]
)
def test_what_a_rewrite_keeps_needs_no_series(formula: str, which: Pass, tmp_path: Path) -> None:
    missed = of(formula, tmp_path).facts[which].missed
    assert (missed.series, missed.left) == (False, ())


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("formula", "which", "device"),
    [
        ("1 / (x * x * x)", Pass.FORWARD, Device.CPU),  # the cube of a small number is 0
        ("log(x / (1 - x))", Pass.BACKWARD, Device.CUDA),  # the fast inverse of a subnormal is infinite
    ],
)
def test_what_float_loses_and_double_does_not_is_computed_in_double(
    formula: str, which: Pass, device: Device, tmp_path: Path
) -> None:
    found = of(formula, tmp_path)
    assert found.facts[which].missed.by_float[device]
    assert not found.facts[which].missed.series
    method = found.plan[which, device, "bfloat16"]
    assert method == (Table() if device is Device.CUDA else DOUBLE)


@pytest.mark.full
@pytest.mark.parametrize(
    ("formula", "lost"),
    [("where(abs(x - y) < 1, 0.5 * (x - y)**2, abs(x - y) - 0.5)", False), ("x * sigmoid(y)", False)],
)
def test_several_tensors_are_computed_in_double_where_float_loses(
    formula: str, lost: bool, tmp_path: Path
) -> None:
    found = of(formula, tmp_path, inputs="x: {}, y: {}")
    for device in Device:
        method = found.plan[Pass.FORWARD, device, "bfloat16"]
        assert (method in (DOUBLE, PLAIN)) is lost
        assert bool(found.facts.forward.missed.by_float[device]) is lost


CANCELS = "tanh(x + y - z)"  # what the sum leaves of one beside two that cancel
BEHIND_A_BIAS = ROOT / "specs" / "kernelbench" / "conv_transpose2d_subtract_tanh.yaml"


def test_16_bits_that_cancel_keep_their_low_words_on_cuda() -> None:
    found = build.compiled_file(BEHIND_A_BIAS)
    kernel = found.kernels[Pass.FORWARD, Device.CUDA, Variant.FLOAT]
    several = Several(found.declared.formula, Pass.FORWARD, tuple(DTYPES), {})
    assert several.misses(kernel) == []
    assert several.misses(collapsed(kernel))
    assert found.plan[Pass.FORWARD, Device.CUDA, "bfloat16"] == FLOAT
    assert tuple(contract_warnings(found)) == ()


@pytest.mark.full
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_16_bits_that_cancel_are_neighbours_of_the_exact_ones(device: str, tmp_path: Path) -> None:
    elements = Elements(Formula(CANCELS, inputs=("x", "y", "z")), "cancels", tmp_path)
    y = torch.linspace(1, 2000, 999, dtype=torch.bfloat16)
    x = (y * 2.0**-24).flip(0)
    given, exact = elements(device, x, y, y)[0].double(), x.double().tanh()
    places = [HALVES["bfloat16"].places(each.numpy()) for each in (given, exact)]
    assert abs(places[0] - places[1]).max() <= 1


@pytest.mark.full
def test_a_warning_tells_of_low_words_that_are_not_there() -> None:
    found = build.compiled_file(BEHIND_A_BIAS)
    on_cuda = [cell for cell in found.plan.methods if cell[1] is Device.CUDA and "16" in cell[2]]
    fast = replace(found.plan, methods={**found.plan.methods, **dict.fromkeys(on_cuda, FAST)})
    told = {(miss.device, miss.dtype) for miss in misses(replace(found, plan=fast))}
    assert (Device.CUDA, "bfloat16") in told
    assert {device for device, _ in told} == {Device.CUDA}


@pytest.mark.full
@pytest.mark.parametrize(
    ("formula", "inputs", "said"),
    [
        ("where(x + 0.5 > y, x + 0.5, 2 * y)", "x: {}, y: {}", "forward"),  # a tiny x decides at y = 0.5
        ("sqrt(x * x + y * y)", "x: {}, y: {}", "the gradient"),  # NaN at two zeros
        ("sqrt(1 + (x - y)**2) - 1", "x: {}, y: {}", "forward"),  # double loses what is tiny, too
        ("x / sqrt(1 + x**4)", "x: {}", "the gradient"),  # which is 0 at 1
    ],
)
def test_build_says_which_16_bit_results_double_loses(
    formula: str, inputs: str, said: str, tmp_path: Path
) -> None:
    lost = of(formula, tmp_path, "dtypes: [bfloat16]\n", inputs=inputs)
    names = ("forward", "the gradient")
    assert said in [name for name, facts in zip(names, lost.facts, strict=True) if facts.missed.left]
    assert tuple(contract_warnings(lost))


def test_build_says_nothing_of_16_bit_results_that_are_right(tmp_path: Path) -> None:
    kept = of("x * sigmoid(y)", tmp_path, "dtypes: [bfloat16]\n", inputs="x: {}, y: {}")
    assert not any(facts.missed.left for facts in kept.facts)


@pytest.mark.full
def test_build_says_which_16_bit_results_are_lost(tmp_path: Path) -> None:
    lost = of("log(0.5 * erfc(-x / sqrt(2)))", tmp_path, "dtypes: [bfloat16]\n")  # its tail has a logarithm
    missed = lost.facts.forward.missed
    assert missed.left
    assert not missed.series
    assert any("bfloat16" in sentence or "16-bit" in sentence for sentence in contract_warnings(lost))


BROKEN = {  # by double alone in bfloat16: the value, the gradient or both
    "cancels next to 0": Formula("(exp(x) - 1 - x) / x**2"),
    "has half a power": Formula("sqrt(x + 1) - sqrt(x)"),
}


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.full
@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_binade_keeps_the_promise(case: str, device: str, tmp_path: Path) -> None:
    points = tuple((x,) for x in (*HALVES["bfloat16"].sample()[::13].tolist(), math.inf, -math.inf))
    found = list(results(Elements(BROKEN[case], "it", tmp_path), device, points, torch.bfloat16))
    assert not [str(each) for each in found if wrong(each)]
    assert sum(math.isfinite(each.got) and each.got != 0 for each in found) > 50
