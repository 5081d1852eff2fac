"""Errors that `build` finds by IEEE arithmetic beside eager's, at the defaults of scalars and at others."""

import math

import numpy as np
import pytest
from conftest import Workshop

from fusegen.compiler import boxes_at_scalars
from fusegen.compiler.boxes_at_scalars import Boxes
from fusegen.compiler.exact_results import ExactResults
from fusegen.compiler.zeros_at_scalars import defaults_and_others
from fusegen.core.facts import Excess
from fusegen.core.method import Pass, Variant
from fusegen.core.targets import Device
from fusegen.project.build import compiled_file

ONE = "source: none\ndtypes: [float32]\ninputs: {x: {}}\n"
ANTOINE = ONE + (
    "params: {a: 8.07, b: 1730.0, c: 233.0}\nassume: {x: '[0, 400]'}\nformula: exp(a - b / (x + c))\n"
)
RATE = ONE + (
    "params: {a: 0.1, v: 40.0, t: 10.0}\nassume: {x: '[-120, 60]'}\n"
    "formula: a * (v + x) / (1 - exp(-(v + x) / t))\n"
)
CUBE = ONE + "params: {a: 1.0e+30}\nformula: cube(x - a) * clamp(x, -1, 2)\n"
PINBALL = ONE + "params: {t: 0.3, a: 0.2}\nformula: t * x + a * log(1 + exp(-x / a))\n"
TANH = ONE + "params: {a: 1.5}\nformula: tanh(a * x)\n"


def boxes(workshop: Workshop, body: str, which: Pass) -> Boxes:
    of = compiled_file(workshop.spec("tried", body))
    formula = of.declared.formula
    in_double, single = (
        of.in_variant(Device.CPU, each) for each in (Variant.DOUBLE, Variant.SINGLE_RESULT)
    )
    return Boxes(formula, of.programs, in_double, single, defaults_and_others(formula), which)


def errors(workshop: Workshop, body: str, which: Pass = Pass.FORWARD) -> list[Excess]:
    return [*boxes(workshop, body, which).excesses()]


def test_an_estimate_like_eagers_hides_no_error_at_the_defaults(workshop: Workshop) -> None:
    """The roundings of x + c and of the quotient decide it, ours and eager's in another way."""
    found, *others = errors(workshop, ANTOINE)
    assert {name: found.own.at[name] for name in "abc"} == {"a": 8.07, "b": 1730.0, "c": 233.0}
    assert found.own.ulp > max(4.0, found.eager)
    assert all(each.own.at["a"] != 8.07 or each.own.at["b"] != 1730.0 for each in others)


def test_an_error_at_other_scalars_exceeds_twice_eagers(workshop: Workshop) -> None:
    found = errors(workshop, RATE, Pass.BACKWARD)
    assert len(found) == 1
    assert found[0].own.at["v"] != 40.0 or found[0].own.at["t"] != 10.0
    assert found[0].own.ulp > 4.0


def test_nan_beside_a_result_beyond_the_range_is_an_error(workshop: Workshop) -> None:
    """The gradient is -1e90; infinities of both signs are added, by eager as well."""
    found, *_ = errors(workshop, CUBE, Pass.BACKWARD)
    assert math.isinf(found.own.ulp)
    assert math.isinf(found.eager)


def test_terms_that_cancel_far_out_are_told_where_eager_overflows(workshop: Workshop) -> None:
    """With t = 1 the terms are -x and x for a large x."""
    found = errors(workshop, PINBALL)
    assert [(each.own.at["t"], each.eager) for each in found] == [(1.0, 0.0)]
    assert found[0].own.ulp > 2.0**24


def test_accurate_kernels_have_no_error(workshop: Workshop) -> None:
    assert errors(workshop, TANH) == errors(workshop, TANH, Pass.BACKWARD) == []


def test_only_an_error_beside_the_real_number_counts(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Double may lose more digits than our kernel does."""
    monkeypatch.setattr(ExactResults, "at", lambda *_: (math.nan,))
    assert errors(workshop, ANTOINE) == []


def test_a_large_formula_is_tried_at_fewer_scalars(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = boxes(workshop, ANTOINE, Pass.FORWARD).tried
    monkeypatch.setattr(boxes_at_scalars, "WORK", 32)
    some = boxes(workshop, ANTOINE, Pass.FORWARD).tried
    assert some[0] == tried[0]
    assert 0 < len(some) < len(tried) / 2


def test_what_counts_as_an_error() -> None:
    """Beyond the range any infinity of the sign is right; beside 0 all digits count."""
    nan, inf, large = math.nan, math.inf, 2.0**127
    given = np.array([1.0, nan, inf, inf, -inf, 2.0, inf, 0.5, nan])
    real = np.array([1.0, 1.0, 1e60, 1.0, 1e60, nan, nan, 0.0, 0.0])
    found = boxes_at_scalars.ulps(given, real).tolist()
    assert found == [0.0, inf, 0.0, inf, 2 * 2.0**128 / 2.0**104, 0.0, inf, 0.5 / 2.0**-149, inf]
    assert boxes_at_scalars.ulps(np.array([large]), np.array([1e60])).tolist() == [2.0**127 / 2.0**104]
