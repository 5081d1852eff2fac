"""The specs of the benchmark's problems: each builds, and its model has the shapes that it declares."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from conftest import ROOT
from kernels import extensions as extensions
from kernels import load, with_runtime
from torch import Tensor

from fusegen import build, doubts
from fusegen.constructor import Layer
from fusegen.pipeline import Compiled
from fusegen.spec import Param

SPECS = {path.stem: path for path in sorted((ROOT / "specs" / "kernelbench").glob("*.yaml"))}
NAMES = json.loads((ROOT / "benchmarks" / "kernelbench" / "names.json").read_text(encoding="utf-8"))
PLAIN = ("linear_shift_relu", "conv2d_min_shift_scale", "scaled_rows", "matrix_times_number")


@functools.cache
def compiled(name: str) -> Compiled:
    """A spec after all stages."""
    return build.compiled_file(SPECS[name])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with a runtime for modules."""
    return with_runtime(tmp_path_factory.mktemp("problems"), "stable")


@functools.cache
def module(name: str, folder: Path) -> ModuleType:
    """A module of a spec."""
    path = folder / f"{name}.py"
    path.write_text(build.module(compiled(name)), encoding="utf-8")
    return load(path)


def test_there_is_a_spec_for_each_of_the_47_problems() -> None:
    assert sorted(NAMES.values()) == sorted(SPECS)
    assert len(SPECS) == 47


@pytest.mark.parametrize("name", SPECS)
def test_a_model_without_elements_has_a_result_of_the_producers_shape(name: str, folder: Path) -> None:
    """On the meta device, where layers have no elements either."""
    own, spec = module(name, folder), compiled(name).spec
    with torch.device("meta"):
        model = own.ModelNew(*own.get_init_inputs())
        tensors = [torch.empty(each.shape) for each in spec.inputs]
        given = iter(tensors)
        arguments = [each.default if isinstance(each, Param) else next(given) for each in spec.arguments]
        result: Tensor = model(*arguments)
        expected = tensors[0]
        for item in spec.layers:
            if isinstance(item, Layer):
                expected = getattr(model, item.attribute)(expected)
    assert result.shape == (tensors[1] if name == "scaled_rows" else expected).shape
    assert result.numel() > 2**20


@pytest.mark.parametrize("name", SPECS)
def test_the_class_shows_the_producer_and_one_call(name: str, folder: Path) -> None:
    text = Path(module(name, folder).__file__ or "").read_text(encoding="utf-8")
    forward = text.split("    def forward(self")[1].split("\n\n")[0].splitlines()[1:]
    spec = compiled(name).spec
    layers = [item for item in spec.layers if isinstance(item, Layer)]
    inplace = 2 * ("if self.inplace:" in text)
    assert len(forward) == 2 * len(layers) + inplace + 3
    assert "nn.functional" not in "".join(forward)


@pytest.mark.parametrize("name", SPECS)
def test_float32_results_on_the_cpu_are_no_slower_than_they_must_be(name: str) -> None:
    """None of the problems sends a user on the CPU to double."""
    said = doubts.doubt(compiled(name)) or ""
    assert "CPU" not in said


@pytest.mark.parametrize("name", PLAIN)
def test_a_module_runs_on_a_small_tensor(name: str, folder: Path) -> None:
    own = module(name, folder)
    torch.manual_seed(0)
    sizes = {"linear_shift_relu": (5, 6, (6,)), "conv2d_min_shift_scale": (3, 4, 3, 0.5, (4, 1, 1), 2.0)}
    model = own.ModelNew(*sizes.get(name, ()))
    a, b = torch.randn(4), torch.randn(4, 4)
    if name == "scaled_rows":
        assert torch.equal(model(a, b), torch.diag(a) @ b)
    elif name == "matrix_times_number":
        assert torch.equal(model(b, 3.5), b * 3.5)
    elif name == "linear_shift_relu":
        x = torch.randn(7, 5)
        torch.testing.assert_close(model(x), torch.relu(model.gemm(x) + model.bias))
    else:
        x = torch.randn(2, 3, 5, 6)
        expected = (torch.minimum(model.conv(x), torch.tensor(0.5)) + model.bias) * 2
        torch.testing.assert_close(model(x), expected)
