"""The words of chains with operands: single where these are enough and take less time."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT, Workshop

from fusegen.compiler import single_words
from fusegen.compiler.pipeline import Compiled, compiled
from fusegen.core import budget
from fusegen.core.ir import Word, calls
from fusegen.core.method import SINGLE_RESULT, Pass, Variant
from fusegen.core.targets import Device
from fusegen.language.library import Library, load
from fusegen.project.build import compiled_file
from fusegen.schedule import cost

SPECS = ROOT / "specs"
CHAIN = "inputs: {x: {}, s: {}, b: {}}\nformula: sigmoid(tanh(x * s) * b)\n"


def made(name: str) -> Compiled:
    """The stages of a spec."""
    path = SPECS / f"{name}.yaml"
    return compiled(load(path), Library(path.parent))


def has_two_words(of: Compiled, which: Pass, variant: Variant) -> bool:
    """True if a kernel on CUDA computes a double-word value."""
    return any(call.word is Word.DOUBLE for call in calls(of.kernels[which, Device.CUDA, variant]))


@pytest.mark.few(1)
@pytest.mark.parametrize("which", Pass)
def test_a_chain_that_single_words_compute_as_well_as_eager_has_these(which: Pass) -> None:
    of = made("kernelbench/conv3d_scale_tanh_scale_sigmoid")
    assert not has_two_words(of, which, Variant.FLOAT)
    assert has_two_words(of, which, Variant.DOUBLE)
    known = of.facts[which].estimates[Device.CUDA]
    assert known.excess is None
    assert known.single.ulp > budget.FLOAT_ENOUGH[Device.CUDA]


def test_double_word_arguments_stay_where_they_hide_behind_the_memory(workshop: Workshop) -> None:
    of = compiled_file(workshop.spec("some", "inputs: {x: {}, b: {}}\nformula: sigmoid(x + b)\n"))
    kernel = of.kernels[Pass.FORWARD, Device.CUDA, Variant.FLOAT]
    assert has_two_words(of, Pass.FORWARD, Variant.FLOAT)
    assert cost.hides(kernel)


def test_with_the_sums_of_broadcast_operands_they_do_not_hide() -> None:
    of = made("kernelbench/conv_transpose2d_subtract_tanh")
    assert not has_two_words(of, Pass.BACKWARD, Variant.FLOAT)


def test_a_function_of_one_tensor_keeps_its_words() -> None:
    assert has_two_words(made("softplus_tanh_mish_silu_hardtanh"), Pass.FORWARD, Variant.FLOAT)


LOG_COSH = "inputs: {x: {}}\nformula: log((exp(x) + exp(-x)) / 2)\n"
SOFT_CAP = "inputs: {x: {}}\nformula: 30 * tanh(x / 30)\n"
CANCELS = "inputs: {x: {}, b: {}, u: {}}\nformula: softplus(x + b) + u\n"
ON_THE_CPU = [  # the passes of a formula that single words compute in float32
    (CHAIN, {Pass.FORWARD}),  # backward they err by more than eager where x s is near 1
    (CANCELS, {Pass.BACKWARD}),  # forward they would lose more digits than eager
    (LOG_COSH, {Pass.FORWARD, Pass.BACKWARD}),
    (SOFT_CAP, set()),
    ("inputs: {x: {}, s: {}}\nformula: x * s\n", set()),  # nothing has two words
    ("dtypes: [float64]\n" + CHAIN, set()),
]


@pytest.mark.parametrize(("body", "passes"), ON_THE_CPU)
def test_the_passes_in_single_words_on_the_cpu(body: str, passes: set[Pass], tmp_path: Path) -> None:
    path = tmp_path / "tried.yaml"
    path.write_text(f"name: tried\nsummary: A test.\n{body}", encoding="utf-8")
    of = compiled(load(path), Library(tmp_path))
    assert {which for which in Pass if (which, Device.CPU, Variant.SINGLE_RESULT) in of.kernels} == passes
    for which in passes:
        kernel = of.kernels[which, Device.CPU, Variant.SINGLE_RESULT]
        assert single_words.in_two_words(kernel) < single_words.in_two_words(
            of.kernels[which, Device.CPU, Variant.FLOAT]
        )
        assert of.facts[which].estimates[Device.CPU].float_ok
        assert of.plan[which, Device.CPU, "float32"] == SINGLE_RESULT


LONG = ("silu_scale_silu", "softplus_tanh_mish_silu_hardtanh", "tanh_gelu_mish_silu_sigmoid", "selu")


@pytest.mark.parametrize("name", LONG)
def test_the_longest_functions_of_one_tensor_in_the_library_keep_their_words(name: str) -> None:
    of = made(name)
    assert not [which for which in Pass if (which, Device.CPU, Variant.SINGLE_RESULT) in of.kernels]


def test_inputs_are_of_full_size_and_what_layers_hold_is_small(tmp_path: Path) -> None:
    path = tmp_path / "tried.yaml"
    path.write_text(f"name: tried\nsummary: A test.\n{CHAIN}", encoding="utf-8")
    given = compiled(load(path), Library(tmp_path))
    held = made("kernelbench/conv3d_scale_tanh_scale_sigmoid")
    moved = [
        [of.kernels[which, Device.CUDA, Variant.FLOAT].moved for which in Pass] for of in (given, held)
    ]
    assert moved == [[4, 7], [2, 3]]  # x, s, b and y; these, grad and three gradients; x and y; x, grad, dx
