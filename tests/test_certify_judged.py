"""The inputs that are judged: of several tensors, beyond the range, at other scalars, and a lost tail."""

import math
import shlex
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from conftest import ROOT, Workshop
from torch import Tensor

from fusegen.algebra.simplify.stable import stable
from fusegen.compiler.pipeline import Compiled
from fusegen.core import scalar_values
from fusegen.core.term import Name, Program, Term, call
from fusegen.evidence.certify import contract, parameter_values, specials, subject, sweep, tried_inputs
from fusegen.evidence.certify.evaluator import Evaluator
from fusegen.evidence.certify.figures import shown
from fusegen.evidence.certify.findings import Accuracy, Evidence, Subject

X, Y, Z, A = (Name(name) for name in "xyza")
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])


@pytest.fixture(autouse=True)
def thin(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, fewer in {
        "EACH": 2,
        "ORDINARY": 2**8,
        "MOST_KINKS": 8,
        "TIED": 2**2,
        "ON_GRIDS": 2**8,
    }.items():
        monkeypatch.setattr(tried_inputs, name, fewer)


def evaluator(term: Term, given: Callable[..., Tensor], names: str = "x", **more: Any) -> Evaluator:
    program = Program(tuple(names), tuple(more.get("params", {})), (), (term,))
    judged = Subject("planted", program, stable(program)[0], **{"params": {}, "given": given, **more})
    return Evaluator(judged, "cpu")


# --- several tensors ------------------------------------------------------------------------------------


@pytest.mark.together
@DTYPES
@pytest.mark.parametrize("names", ["xy", "xyz", "xyza"])
def test_a_sample_of_several_tensors_meets_every_kind_of_point(
    monkeypatch: pytest.MonkeyPatch, names: str, dtype: str
) -> None:
    monkeypatch.setattr(tried_inputs, "ORDINARY", 2**13)  # many beside the points on lines
    monkeypatch.setattr(tried_inputs, "TIED", 2**6)
    program = Program(tuple(names), (), (), (call("relu", X - 1) * Y,))
    found = tried_inputs.sample(program, {}, getattr(torch, dtype))
    assert len(found) == len(names)
    assert len({len(column) for column in found}) == 1
    assert all(bool(column.isfinite().all()) for column in found)
    for i in range(len(names)):
        assert 0.0 in found[i].tolist()
        for j in range(i):
            a, b = found[i].double(), found[j].double()
            assert int((a == b).sum()) > 30
            assert int((a == -b).sum()) > 30
            assert {1.0, -1.0} <= set((a[a != 0] / b[a != 0]).tolist())
            apart = (a != b) & (a.abs() > 1e-3) & (b.abs() > 1e-3) & (a.abs() < 1e3) & (b.abs() < 1e3)
            sizes = torch.stack([a[apart].abs().log2(), b[apart].abs().log2()])
            assert abs(float(torch.corrcoef(sizes)[0, 1])) < 0.3  # tied in few points only
    assert all(
        torch.equal(a, b)
        for a, b in zip(found, tried_inputs.sample(program, {}, getattr(torch, dtype)), strict=True)
    )


def test_three_tensors_and_their_gradients_are_judged() -> None:
    found = evaluator(X * Y + Z, lambda x, y, z: x * y + z, "xyz").evidence("float64")
    assert [output.name for output in found.outputs] == [
        "value", "gradient of x", "gradient of y", "gradient of z",
    ]  # fmt: skip
    assert [output.given.ulp for output in found.outputs][1:] == [0.0, 0.0, 0.0]
    assert len(found.outputs[0].given.worst[0].inputs) == 3
    assert found.ranges == {name: (-1e4, 1e4) for name in "xyz"}


def wrong_beyond(x: Tensor, y: Tensor) -> Tensor:
    return torch.where((x.abs() > 1e4) | (y.abs() > 1e4), 2 * x * y, x * y)


@pytest.mark.full
def test_what_is_beyond_the_range_is_reported_and_not_judged() -> None:
    found = evaluator(X * Y, wrong_beyond, "xy", eager=torch.mul).evidence("float32")
    broken = contract.judged(found, "accurate", "cpu").broken
    assert not [sentence for sentence in broken if "break C3" in sentence]  # but at infinity it is wrong
    assert found.outputs[0].given.ulp <= 0.5
    assert found.beyond is not None
    assert found.beyond.inputs > 100
    assert found.beyond.outputs[0].given.ulp > 1e6
    assert shown(found)["beyond"]["value"]["given"]["ulp"] > 1e6
    assert shown(found)["ranges"] == {"x": ["-10000.0", "10000.0"], "y": ["-10000.0", "10000.0"]}


@pytest.mark.full
def test_what_is_assumed_is_the_range() -> None:
    one = evaluator(X * Y, wrong_beyond, "xy", eager=torch.mul, assume={"x": (0.0, math.inf)})
    found = one.evidence("float32")
    assert found.ranges == {"x": (0.0, math.inf), "y": (-1e4, 1e4)}
    assert found.outputs[0].given.ulp > 1e6
    assert all(float.fromhex(row.inputs[0]) >= 0 for row in found.outputs[0].given.worst)


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_one_tensor_is_judged_where_it_is_assumed_to_be(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    def wrong(x: Tensor) -> Tensor:
        return torch.where((x < 0.5) | (x > 2), x + 1, x * 1)

    monkeypatch.setattr(sweep, "runs", lambda count, length: iter([0x3F000000 - 2**15, 0x3FFF8000]))
    found = evaluator(call("neg", -X), wrong, assume={"x": (0.5, 2.0)}).evidence(dtype, 2**24)
    assert found.ranges == {"x": (0.5, 2.0)}
    assert [output.given.ulp for output in found.outputs] == [0.0, 0.0]
    free = evaluator(call("neg", -X), wrong).evidence(dtype, 2**24)
    assert free.outputs[0].given.ulp > 100


def test_a_range_without_a_number_of_the_type_has_no_errors() -> None:
    found = evaluator(call("neg", -X), torch.clone, assume={"x": (1e6, 1e7)}).evidence("float16")
    assert (found.inputs, [output.given.ulp for output in found.outputs]) == (0, [0.0, 0.0])


def test_a_special_value_meets_ordinary_ones() -> None:
    def wrong(x: Tensor, y: Tensor) -> Tensor:
        return torch.where(y.isnan(), x, torch.sigmoid(x) * y)

    one = evaluator(call("sigmoid", X) * Y, wrong, "xy", eager=lambda x, y: torch.sigmoid(x) * y)
    value, by_x, by_y = specials.found(one, torch.float32)
    at = {special.place: (special.given, special.eager, special.real) for special in value}
    assert at["x=inf"] == ("1.0", "1.0", "1.0")
    assert at["y=nan"] == ("1.0", "nan", "nan")
    assert at["y=-inf"] == ("-inf", "-inf", "-inf")
    assert {special.place: special.real for special in by_x}["x=-inf"] == "0.0"
    assert {special.place: special.real for special in by_y}["x=-inf"] == "nan"  # nothing is known of it
    broken = contract.judged(one.evidence("float16"), "accurate", "cpu").broken
    assert "value at y=nan is 1.0, not nan; eager gives nan" in broken


# --- scalars --------------------------------------------------------------------------------------------


def scaled(factor: float) -> Callable[[dict[str, Fraction]], Subject]:
    """A subject a x, which is off by a factor where a is negative; eager refuses an a of 0."""

    def eager(x: Tensor, a: float) -> Tensor:
        if a == 0:
            raise ValueError("a must not be 0")
        return x * a

    def at(params: dict[str, Fraction]) -> Subject:
        a = float(params["a"])
        program = Program(("x",), ("a",), (), (X * A,))
        return Subject(
            "planted", program, program, params, lambda x: x * a * (factor if a < 0 else 1),
            lambda x: eager(x, a), with_params=at,
        )  # fmt: skip

    return at


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_scalars_are_judged(dtype: str) -> None:
    judged: dict[float, Evidence] = {}
    for factor in (1.0, 1.5):
        one = scaled(factor)({"a": Fraction(2)})
        found = Evaluator(one, "cpu").evidence(dtype)
        judged[factor] = contract.judged(found, "accurate", "cpu")
    assert judged[1.0].broken == ()
    chosen = [sample.scalars for sample in judged[1.0].scalars]
    assert chosen[:-6] == [(("a", float(a)),) for a in scalar_values.VALUES if a not in (0, 2)]
    assert all(2.0**-10 <= abs(a) <= 2.0**10 for ((_, a),) in chosen[-6:])
    assert judged[1.5].outputs == judged[1.0].outputs
    for a in ("-2.5", "-0.1", "-0.01", "-1", "-8.58993e+09"):
        assert any(sentence.startswith(f"with a = {a}: value") for sentence in judged[1.5].broken)
    [negative, *_] = shown(judged[1.5])["scalars"]
    assert (negative["values"], negative["inputs"] > 100) == ({"a": "-3.0"}, True)
    assert negative["value"]["given"]["ulp"] > 100 * negative["value"]["eager"]["ulp"]


def test_a_formula_that_is_undefined_at_most_points_is_no_function() -> None:
    def at(params: dict[str, Fraction]) -> Subject:
        program = Program(("x",), ("a",), (), (X / A,))
        return Subject("planted", program, program, params, lambda x: x * 1, with_params=at)

    one = at({"a": Fraction(1)})
    found = parameter_values.samples(Evaluator(one, "cpu"), torch.float32)
    assert {a for _, _, ((_, a),) in found} >= {float(a) for a in scalar_values.VALUES} - {0.0, 1.0}


def test_parameters_move_one_at_a_time_and_all_together() -> None:
    found = scalar_values.combinations({"a": Fraction(0), "b": Fraction(1)})
    alone, drawn = found[:-6], found[-6:]
    assert len(alone) == 2 * (len(scalar_values.VALUES) - 1)
    assert all(values["a"] == 0 or values["b"] == 1 for values in alone)
    assert all(values["a"] != 0 and values["b"] != 1 for values in drawn)
    assert {value > 0 for values in drawn for value in values.values()} == {True, False}
    assert scalar_values.combinations({"a": Fraction(0), "b": Fraction(1)}) == found
    assert scalar_values.combinations({}) == []


def test_the_documentation_has_the_values_that_parameters_take() -> None:
    text = " ".join((ROOT / "docs/certificates.md").read_text(encoding="utf-8").split())
    named = {"±0.1": 0.1, "±0.01": 0.01, "±2^-30": 2.0**-30, "±2^30": 2.0**30, "±2^33": 2.0**33}
    *first, last = named
    assert f"At other values {parameter_values.MOST_INPUTS} inputs are tried: one scalar at a time" in text
    assert f"at the halves from -3 to 3, {', '.join(first)} and {last}, " in text
    assert f"and all of them together at {scalar_values.DRAWS} draws" in text
    halves = [k / 2 for k in range(-6, 7)]
    sizes = [sign * size for size in named.values() for sign in (1, -1)]
    assert sorted(map(float, scalar_values.VALUES)) == pytest.approx(sorted([*halves, *sizes]))


@DTYPES
def test_two_inputs_lie_on_each_line(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setattr(tried_inputs, "TIED", 2**7)
    program = Program(("x", "y"), (), (), (call("relu", X - 7) * Y,))
    assert tried_inputs.apart(program, {"a": Fraction(1, 5)})[-2:] == (0.2, 7.0)
    x, y = tried_inputs.sample(program, {}, getattr(torch, dtype))
    for by in (0.25, -0.5, 1.0, -2.0, 3.0, -4.0, 7.0):
        far = x.abs() > 2.0**-5
        assert int((far & (y == by * x)).sum()) >= 32
        assert int((far & (y == x + by)).sum()) >= 32
    powers = [torch.frexp(t.double())[0].abs() == 0.5 for t in (x, y)]
    assert int((powers[0] & powers[1]).sum()) > 50


# --- a lost tail ----------------------------------------------------------------------------------------

TAIL = -12.5


def gelu(x: Tensor, tail: float) -> Tensor:
    """A GELU that is so many times too large from -12.5 on."""
    exact = x.double() * torch.special.erfc(x.double() * -(0.5**0.5)) / 2
    return torch.where(x <= TAIL, tail * exact, exact).to(x.dtype)


@pytest.mark.full
@pytest.mark.parametrize("tail", [1.0, 1e16])
def test_a_tail_that_is_too_large_is_told(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, tail: float
) -> None:
    workshop.build("by_erf", "formula: x * 0.5 * (1 + erf(x / sqrt(2)))\ndtypes: [float32]")
    monkeypatch.setattr(sweep, "runs", lambda count, length: iter([0xC1480000]))  # from -12.5 on
    of_module = subject.of_module

    def planted(compiled: Compiled, module: Any) -> Subject:
        return replace(of_module(compiled, module), given=lambda x: gelu(x, tail))

    monkeypatch.setattr(subject, "of_module", planted)
    result = workshop.run("certify", "--device", "cpu", "--sample", "16777216")  # a run of 65,536
    assert "undecided" not in result.stderr
    assert ("break C1: " in result.stderr) is (tail > 1)
    if tail > 1:
        assert result.exit_code == 1
        line = next(line for line in result.stderr.splitlines() if line.startswith("  value "))
        assert float.fromhex(shlex.split(line.partition(": ")[2])[-1]) <= TAIL
        assert float(line.split()[1]) > 1e16


def test_a_result_of_zero_for_a_tail_is_no_small_error() -> None:
    """The unit is the ulp of the exact result, not of a term that cancels."""
    term = X * 0.5 * (1 + call("erf", X / call("sqrt", 2)))
    found = evaluator(term, lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5))).sampled(torch.float32)
    assert isinstance(found.outputs[0].given, Accuracy)
    assert found.outputs[0].given.ulp > 2**22
