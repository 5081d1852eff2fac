"""The plan: what each row of the choice gives, what holds of all plans, and the types of methods in C++."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import library_spec
from hypothesis import given
from hypothesis import strategies as st

from fusegen.codegen.printers.methods import method_type, method_types
from fusegen.core import budget
from fusegen.core.dtypes import ELEMENTS
from fusegen.core.facts import NONE_MISSED, Curves, Facts, Missed
from fusegen.core.ir import Kernel, Math, Ref
from fusegen.core.method import (
    DOUBLE,
    FAST,
    FLOAT,
    PLAIN,
    SERIES,
    SINGLE_RESULT,
    SINGLE_WORD,
    Arithmetic,
    AtDefaults,
    Both,
    Grid,
    Method,
    Pass,
    Piecewise,
    Segmented,
    Table,
    Verified,
    arithmetics,
    parts,
)
from fusegen.core.targets import Device
from fusegen.project import build
from fusegen.schedule.plan import CHOICE, choose

CPU, CUDA = Device.CPU, Device.CUDA
EVERYWHERE, NOWHERE = dict.fromkeys(Device, True), dict.fromkeys(Device, False)
BIT = (Kernel("bit", CUDA, Math.FLOAT, ("x",), (), (), (Ref("x"),)),) * 2
PLAIN_FACTS = Facts(
    unary=True, reads_params=False, has_params=False, float_ok=EVERYWHERE, float_ok_in_16_bits=False,
    loses_16_bits=NOWHERE, missed=NONE_MISSED, plain_double_ok=False,
    fast=False, fast_errs=False, verification_hides=False,
    compute_bound_in_16_bits=False, piecewise_pays=False, approximates_on_cpu=False, shorter_on_cpu=False,
    in_single_words=False, estimates={}, grid=None, curves=None,
)  # fmt: skip
Known = dict[str, object]  # facts that differ from `PLAIN_FACTS`
LOST: Known = {"float_ok": NOWHERE}
INACCURATE: Known = {"loses_16_bits": EVERYWHERE}
IN_SERIES: Known = INACCURATE | {"missed": Missed(dict.fromkeys(Device, 9), series=True)}
NO_SERIES: Known = INACCURATE | {"missed": Missed(dict.fromkeys(Device, 9), ({"x": 0.5},))}
PARAMS: Known = {"has_params": True, "reads_params": True}
MANY: Known = {"unary": False}
NO_LOW_WORDS: Known = MANY | {"missed": Missed(dict.fromkeys(Device, 0), by_fast=3)}
BY_CURVES, SLOWER = ({"curves": Curves(BIT[0], (), saves=saves)} | MANY for saves in (True, False))
FINE, FINE_PLAIN = Piecewise(Grid.OCTAVES, DOUBLE), Piecewise(Grid.OCTAVES, PLAIN)
CELLS: list[tuple[Device, int, Known, Method]] = [
    (CUDA, 64, {}, DOUBLE),
    (CUDA, 64, LOST, DOUBLE),
    (CUDA, 32, {}, FLOAT),
    (CUDA, 32, {"fast": True}, FLOAT),
    (CUDA, 32, {"piecewise_pays": True}, Piecewise(Grid.UNIFORM, FLOAT)),
    (CUDA, 32, LOST, FINE),
    (CUDA, 32, LOST | {"has_turns": True}, DOUBLE),
    (CPU, 32, LOST | {"has_turns": True}, DOUBLE),
    (CUDA, 32, LOST | {"plain_double_ok": True}, FINE),
    (CUDA, 32, LOST | {"has_params": True, "plain_double_ok": True}, FINE_PLAIN),
    (CUDA, 32, LOST | PARAMS, AtDefaults(FINE, DOUBLE)),
    (CUDA, 32, LOST | PARAMS | {"plain_double_ok": True}, AtDefaults(FINE_PLAIN, PLAIN)),
    (CUDA, 32, BY_CURVES, Segmented(FLOAT)),
    (CUDA, 32, SLOWER, FLOAT),
    (CUDA, 32, LOST | BY_CURVES, Segmented(DOUBLE)),
    (CUDA, 32, LOST | SLOWER | {"plain_double_ok": True}, Segmented(PLAIN)),
    (CUDA, 16, BY_CURVES, FLOAT),
    (CUDA, 64, BY_CURVES, DOUBLE),
    (CPU, 32, BY_CURVES, FLOAT),
    (CUDA, 32, LOST | MANY, DOUBLE),
    (CUDA, 32, LOST | MANY | {"plain_double_ok": True}, PLAIN),
    (CUDA, 16, {}, FLOAT),
    (CUDA, 16, {"fast": True}, FAST),
    (CUDA, 16, {"fast": True, "fast_errs": True, "verification_hides": True}, Verified(FAST, DOUBLE)),
    (CUDA, 16, {"fast": True, "fast_errs": True}, Table()),
    (CUDA, 16, {"fast": True, "fast_errs": True} | MANY, FAST),
    (CUDA, 16, {"fast": True, "fast_errs": True} | PARAMS, AtDefaults(Table(), Verified(FAST, DOUBLE))),
    (CUDA, 16, {"fast": True, "compute_bound_in_16_bits": True}, Table()),
    (CUDA, 16, {"fast": True, "compute_bound_in_16_bits": True} | MANY, FAST),
    (CUDA, 16, {"compute_bound_in_16_bits": True, "has_params": True}, AtDefaults(Table(), FLOAT)),
    (CUDA, 16, LOST, Table()),
    (CUDA, 16, LOST | PARAMS, AtDefaults(Table(), DOUBLE)),
    (CUDA, 16, INACCURATE, Table()),
    (CUDA, 16, INACCURATE | PARAMS | {"plain_double_ok": True}, AtDefaults(Table(), PLAIN)),
    (CUDA, 16, INACCURATE | {"fast": True, "fast_errs": True, "verification_hides": True}, Table()),
    (CUDA, 32, INACCURATE, FLOAT),
    (CUDA, 16, LOST | PARAMS | {"plain_double_ok": True}, AtDefaults(Table(), PLAIN)),
    (CUDA, 16, LOST | MANY, DOUBLE),
    (CUDA, 16, LOST | MANY | {"plain_double_ok": True}, PLAIN),
    (CUDA, 16, LOST | MANY | {"float_ok_in_16_bits": True}, FLOAT),
    (CUDA, 16, LOST | MANY | {"float_ok_in_16_bits": True, "fast": True}, FAST),
    (CUDA, 16, {"fast": True} | NO_LOW_WORDS, FLOAT),
    (CUDA, 16, {"fast": True, "fast_errs": True, "verification_hides": True} | NO_LOW_WORDS, FLOAT),
    (CUDA, 16, INACCURATE | {"fast": True} | NO_LOW_WORDS, DOUBLE),
    (CUDA, 32, {"fast": True} | NO_LOW_WORDS, FLOAT),
    (CUDA, 16, IN_SERIES, Table(Arithmetic.SERIES)),
    (CUDA, 16, IN_SERIES | {"fast": True, "fast_errs": True}, Table(Arithmetic.SERIES)),
    (CUDA, 16, NO_SERIES, Table()),
    (CPU, 16, IN_SERIES, SERIES),
    (CPU, 16, IN_SERIES | LOST, SERIES),
    (CPU, 16, NO_SERIES, DOUBLE),
    (CPU, 32, IN_SERIES, FLOAT),
    (CUDA, 64, IN_SERIES, DOUBLE),
    (CPU, 64, {}, DOUBLE),
    (CPU, 64, LOST, DOUBLE),
    (CPU, 32, {}, FLOAT),
    (CPU, 32, {"piecewise_pays": True}, FLOAT),
    (CPU, 32, {"in_single_words": True}, SINGLE_RESULT),
    (CPU, 32, LOST | {"in_single_words": True}, FINE),
    (CPU, 32, LOST, FINE),
    (CPU, 32, LOST | PARAMS, DOUBLE),
    (CPU, 32, LOST | MANY, DOUBLE),
    (CPU, 16, {}, FLOAT),
    (CPU, 16, {"in_single_words": True}, FLOAT),
    (CPU, 16, {"in_single_words": True, "approximates_on_cpu": True}, Verified(FLOAT, DOUBLE)),
    (
        CPU, 16, {"in_single_words": True, "approximates_on_cpu": True, "shorter_on_cpu": True},
        Verified(SINGLE_WORD, DOUBLE),
    ),
    (CPU, 16, {"approximates_on_cpu": True}, Verified(FLOAT, DOUBLE)),
    (CPU, 16, {"approximates_on_cpu": True, "shorter_on_cpu": True}, Verified(SINGLE_WORD, DOUBLE)),
    (CPU, 32, INACCURATE, FLOAT),
    (CPU, 16, INACCURATE, DOUBLE),
    (CPU, 16, INACCURATE | {"approximates_on_cpu": True, "shorter_on_cpu": True}, DOUBLE),
    (CPU, 16, INACCURATE | LOST, Verified(FINE, DOUBLE)),
    (CPU, 16, LOST, Verified(FINE, DOUBLE)),
    (CPU, 16, LOST | PARAMS | {"approximates_on_cpu": True}, DOUBLE),
    (CPU, 16, LOST | MANY, DOUBLE),
]  # fmt: skip


@pytest.mark.together
@pytest.mark.parametrize(("device", "bits", "known", "expected"), CELLS)
def test_a_cell_of_the_choice(device: Device, bits: int, known: Known, expected: Method) -> None:
    changes: dict[str, Any] = {**known}
    assert CHOICE[device, bits](replace(PLAIN_FACTS, **changes)) == expected


def test_every_device_and_width_has_a_row() -> None:
    assert set(CHOICE) == {(device, element.bits) for device in Device for element in ELEMENTS.values()}


truth = st.booleans()
some_facts = st.builds(
    Facts,
    float_ok=st.fixed_dictionaries(dict.fromkeys(Device, truth)),
    loses_16_bits=st.fixed_dictionaries(dict.fromkeys(Device, truth)),
    missed=st.just(NONE_MISSED),
    estimates=st.just({}),
    grid=st.none(),
    **dict.fromkeys(
        (
            "unary", "reads_params", "has_params", "float_ok_in_16_bits", "plain_double_ok", "fast",
            "fast_errs", "verification_hides", "compute_bound_in_16_bits", "piecewise_pays",
            "approximates_on_cpu", "shorter_on_cpu", "in_single_words",
        ),
        truth,
    ),
)  # fmt: skip
some_dtypes = st.lists(st.sampled_from(sorted(ELEMENTS)), min_size=1, unique=True).map(tuple)
everything = given(st.builds(Both, some_facts, some_facts), some_dtypes)
Property = Callable[[Facts, Device, int, Method], bool]


def table_is_of_a_unary_function(f: Facts, device: Device, bits: int, method: Method) -> bool:
    """A table has all results there are, of 16 bits, for the parameters' defaults."""
    if not any(isinstance(part, Table) for part in parts(method)):
        return True
    return f.unary and (device, bits) == (CUDA, 16) and isinstance(method, AtDefaults) is f.has_params


def float_is_computed_where_it_is_enough(f: Facts, device: Device, bits: int, method: Method) -> bool:
    """No float32 result comes from float arithmetic that is not accurate enough."""
    enough = f.float_ok[device] or bits != 32
    return enough or arithmetics(method) <= {Arithmetic.DOUBLE, Arithmetic.PLAIN_DOUBLE}


def nothing_that_float_loses_is_computed_in_it(f: Facts, device: Device, bits: int, method: Method) -> bool:
    """With the default scalars, no 16-bit result comes from float if its error may exceed half an ulp."""
    if bits != 16 or not f.loses_16_bits[device] or not f.unary:
        return True
    first = method.then if isinstance(method, AtDefaults) else method
    cubics = isinstance(first, Verified) and isinstance(first.fast, Piecewise)
    return cubics or first in (Table(), DOUBLE, PLAIN)


PROPERTIES: tuple[Property, ...] = (
    nothing_that_float_loses_is_computed_in_it,
    lambda f, device, bits, method: (bits == 64) <= (method == DOUBLE),
    table_is_of_a_unary_function,
    float_is_computed_where_it_is_enough,
    lambda f, device, bits, method: (
        Arithmetic.FAST_FLOAT not in arithmetics(method) or (f.fast and (device, bits) == (CUDA, 16))
    ),
    lambda f, device, bits, method: (
        Arithmetic.SINGLE_WORD not in arithmetics(method) or method == Verified(SINGLE_WORD, DOUBLE)
    ),
    lambda f, device, bits, method: (
        Arithmetic.SINGLE_RESULT not in arithmetics(method)
        or (device, bits, method) == (CPU, 32, SINGLE_RESULT)
    ),
    lambda f, device, bits, method: (
        not any(isinstance(part, Piecewise) for part in parts(method)) or f.unary or f.piecewise_pays
    ),
    lambda f, device, bits, method: (
        not isinstance(method, Verified) or bits == 16
    ),
)  # fmt: skip


@everything
def test_what_holds_of_every_method(facts: Both[Facts], dtypes: tuple[str, ...]) -> None:
    for which in Pass:
        for device in Device:
            for dtype in dtypes:
                bits = ELEMENTS[dtype].bits
                method = CHOICE[device, bits](facts[which])
                assert all(holds(facts[which], device, bits, method) for holds in PROPERTIES)


@everything
def test_what_holds_of_every_plan(facts: Both[Facts], dtypes: tuple[str, ...]) -> None:
    plan = choose(facts, dtypes)
    assert set(plan.methods) == {(p, d, dtype) for p in Pass for d in Device for dtype in dtypes}
    for (which, device, dtype), method in plan.methods.items():
        assert method == CHOICE[device, ELEMENTS[dtype].bits](facts[which])


EXAMPLES = {
    ("gelu", Pass.FORWARD, CUDA, "float16"): Table(),
    ("silu", Pass.FORWARD, CUDA, "float16"): Verified(FAST, DOUBLE),
    ("silu", Pass.FORWARD, CPU, "bfloat16"): Verified(SINGLE_WORD, DOUBLE),
    ("celu", Pass.FORWARD, CUDA, "bfloat16"): AtDefaults(Table(), Verified(FAST, DOUBLE)),
    ("mish_mish", Pass.BACKWARD, CUDA, "float32"): Piecewise(Grid.UNIFORM, FLOAT),
    ("relu", Pass.FORWARD, CUDA, "float16"): FLOAT,
    ("gelu", Pass.BACKWARD, CPU, "float64"): DOUBLE,
    ("geglu", Pass.BACKWARD, CPU, "float32"): SINGLE_RESULT,
    ("geglu", Pass.BACKWARD, CPU, "bfloat16"): Verified(FLOAT, DOUBLE),
    ("tanh_gelu_mish_silu_sigmoid", Pass.BACKWARD, CPU, "float32"): FINE,
    ("snake", Pass.BACKWARD, CPU, "float32"): FLOAT,  # in double the sine is scalar
}


@pytest.mark.few(4)
@pytest.mark.parametrize("cell", EXAMPLES, ids=lambda cell: f"{cell[0]}-{cell[1].value}-{cell[3]}")
def test_how_the_library_is_computed(cell: tuple[str, Pass, Device, str]) -> None:
    name, which, device, dtype = cell
    plan = library_spec(name).plan
    assert plan[which, device, dtype] == EXAMPLES[cell]


@pytest.mark.full
@pytest.mark.parametrize(
    ("formula", "methods"),
    [
        ("hardswish(x * s + b)", {Device.CPU: FLOAT, Device.CUDA: FLOAT}),  # cancels, and eager's does
        ("hardswish(x) * s + b * x", {Device.CPU: DOUBLE, Device.CUDA: PLAIN}),  # exact in eager: s + b
    ],
)
def test_a_gradient_is_computed_in_float_where_eagers_errors_are_as_large(
    tmp_path: Path, formula: str, methods: dict[Device, Method]
) -> None:
    """Both lose digits in float where terms cancel; one loses more than eager at the same inputs."""
    spec = tmp_path / "chain.yaml"
    head = "name: chain\nsummary: A chain.\ninputs: {x: {}, s: {}, b: {}}\n"
    spec.write_text(f"{head}formula: {formula}\n")
    found = build.compiled_file(spec)
    for device, method in methods.items():
        known = found.facts.backward.estimates[device]
        assert known.single.ulp > budget.FLOAT_ENOUGH[device]
        assert found.plan[Pass.BACKWARD, device, "float32"] == method
        assert known.float_ok is (method == FLOAT)


@pytest.mark.full
@pytest.mark.parametrize(
    ("formula", "which", "method"),
    [
        ("sin(2 * pi * f * x)", Pass.BACKWARD, DOUBLE),  # f x is rounded in float
        ("f + sin(pi * x)", Pass.BACKWARD, FLOAT),
        ("f * x / (exp(x) - 1)", Pass.FORWARD, DOUBLE),  # eager is no yardstick
    ],
)
def test_what_is_no_yardstick_costs_double_on_the_cpu(
    tmp_path: Path, formula: str, which: Pass, method: Method
) -> None:
    spec = tmp_path / "one.yaml"
    head = "name: one\nsummary: One.\ninputs: {x: {}}\nparams: {f: 1.5}\n"
    spec.write_text(f"{head}formula: {formula}\n")
    assert build.compiled_file(spec).plan[which, Device.CPU, "float32"] == method


@pytest.mark.full
def test_a_formula_is_in_single_words_where_these_lose_no_more_than_eager(tmp_path: Path) -> None:
    """With half as much again two functions that cancel were further off than certify allows."""
    spec = tmp_path / "one.yaml"
    formula = "m * ndtr(m / s) + s * exp(-0.5 * (m / s)**2) / sqrt(2 * pi)"
    spec.write_text(f"name: one\nsummary: One.\ninputs: {{m: {{}}, s: {{}}}}\nformula: {formula}\n")
    found = build.compiled_file(spec)
    assert [found.plan[which, CPU, "float32"] for which in Pass] == [FLOAT, SINGLE_RESULT]
    # as the density's slope cancels against that of its integral
    assert "out[1] = grad * normal<SINGLE_RESULT>(t);" in build.text_of(found, "cpu")


# --- the C++ type of a method ---------------------------------------------------------------------------

TYPES: list[tuple[Method, int, Device, str]] = [
    (FLOAT, 32, CUDA, "Formula<float>"),
    (FAST, 16, CUDA, "Formula<FastFloat>"),
    (SINGLE_RESULT, 32, CPU, "Formula<float>"),
    (DOUBLE, 32, CUDA, "Widened<double>"),
    (PLAIN, 16, CUDA, "Widened<PlainDouble>"),
    (DOUBLE, 64, CUDA, "Formula<double>"),
    (DOUBLE, 32, CPU, "Formula<double>"),
    (SERIES, 16, CPU, "Formula<double>"),
    (Table(Arithmetic.SERIES), 16, CUDA, "Table"),
    (Piecewise(Grid.UNIFORM, FLOAT), 32, CUDA, "PiecewiseUniform"),
    (Piecewise(Grid.OCTAVES, PLAIN), 32, CUDA, "PiecewiseOctaves"),
    (Segmented(PLAIN), 32, CUDA, "PiecewiseSegments<PlainDouble>"),
    (Verified(SINGLE_WORD, DOUBLE), 16, CPU, "Verified<float, double>"),
    (Verified(FAST, DOUBLE), 16, CUDA, "Verified<FastFloat, double>"),
    (Verified(Piecewise(Grid.OCTAVES, DOUBLE), DOUBLE), 16, CPU, "PiecewiseOctaves"),
    (
        AtDefaults(Table(), Verified(FAST, DOUBLE)),
        16,
        CUDA,
        "AtDefaults<Table, Verified<FastFloat, double>>",
    ),
    (AtDefaults(Table(), PLAIN), 16, CUDA, "AtDefaults<Table, Widened<PlainDouble>>"),
]


@pytest.mark.parametrize(("method", "bits", "device", "expected"), TYPES)
def test_a_method_has_one_type(method: Method, bits: int, device: Device, expected: str) -> None:
    assert method_type(method, bits, device) == expected


@pytest.mark.parametrize("device", list(Device))
def test_a_width_without_a_method_has_the_default(device: Device) -> None:
    default = "ByWidth<Formula<float>, Formula<float>, Formula<double>>"
    assert method_types({}, device) == default
    assert method_types({"float64": DOUBLE}, device) == default
    octaves = {"float32": Piecewise(Grid.OCTAVES, DOUBLE)}
    assert method_types(octaves, device) == "ByWidth<Formula<float>, PiecewiseOctaves, Formula<double>>"
