"""The words of chains with operands on CUDA: single where these are enough and take less time."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT

from fusegen import budget, cost
from fusegen.ir import Device, Word, calls
from fusegen.library import Library, load
from fusegen.method import Arithmetic, Pass, Variant
from fusegen.pipeline import Compiled, compiled

SPECS = ROOT / "specs"
CHAIN = "inputs: {x: {}, s: {}, b: {}}\nformula: sigmoid(tanh(x * s) * b)\n"


def made(name: str) -> Compiled:
    """The stages of a spec."""
    path = SPECS / f"{name}.yaml"
    return compiled(load(path), Library(path.parent))


def has_two_words(of: Compiled, which: Pass, variant: Variant) -> bool:
    """Whether a kernel on CUDA computes a double-word value."""
    return any(call.word is Word.DOUBLE for call in calls(of.kernels[which, Device.CUDA, variant]))


@pytest.mark.parametrize("which", Pass)
def test_a_chain_that_single_words_compute_as_well_as_eager_has_these(which: Pass) -> None:
    of = made("kernelbench/conv3d_scale_tanh_scale_sigmoid")
    assert not has_two_words(of, which, Variant.FLOAT)
    assert has_two_words(of, which, Variant.DOUBLE)
    error = of.facts[which].estimates[Device.CUDA].single.ulp
    assert budget.FLOAT_ENOUGH[Device.CUDA] < error <= of.declared.formula.enough(Device.CUDA, which)


def test_double_word_arguments_stay_where_they_hide_behind_the_memory() -> None:
    of = made("kernelbench/conv_transpose2d_subtract_tanh")
    kernel = of.kernels[Pass.FORWARD, Device.CUDA, Variant.FLOAT]
    assert has_two_words(of, Pass.FORWARD, Variant.FLOAT)
    assert cost.slots(kernel, Arithmetic.FLOAT) <= cost.issued(kernel, 4)


def test_a_function_of_one_tensor_keeps_its_words() -> None:
    assert has_two_words(made("softplus_tanh_mish_silu_hardtanh"), Pass.FORWARD, Variant.FLOAT)


def test_inputs_are_of_full_size_and_what_layers_hold_is_small(tmp_path: Path) -> None:
    path = tmp_path / "tried.yaml"
    path.write_text(f"name: tried\nsummary: A test.\n{CHAIN}", encoding="utf-8")
    given = compiled(load(path), Library(tmp_path))
    held = made("kernelbench/conv3d_scale_tanh_scale_sigmoid")
    moved = [
        [of.kernels[which, Device.CUDA, Variant.FLOAT].moved for which in Pass] for of in (given, held)
    ]
    assert moved == [[4, 7], [2, 3]]  # x, s, b and y; these, grad and three gradients; x and y; x, grad, dx
