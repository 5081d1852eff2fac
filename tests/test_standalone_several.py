"""Standalone files of several kernels: on the CPU and, emulated, on CUDA."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernels import ROOT
from standalone_files import assert_readable, emulated, nvcc, strings
from torch import Tensor
from torch.utils import cpp_extension

from fusegen.codegen.standalone import several_file
from fusegen.core.dtypes import ELEMENTS
from fusegen.project import build, standalone

CUBE, PAIR = (3, 3, 3), (2, 2, 2)
Model = tuple[int, int, tuple[Any, ...], tuple[int, ...]]
MODELS: dict[str, Model] = {  # kernels, lines, the arguments of the constructor, the shape of the input
    "conv_transpose3d_scale_batch_norm_mean": (3, 1365, (3, 4, 3, 2.0, 1e-5, 0.1), (2, 3, 4, 5, 5)),
    "linear_group_norm_min_shift": (3, 1240, (16, 32, 4, (1, 32, 1, 1)), (5, 16)),
    "conv3d_min_softmax": (2, 1060, (3, 6, 3, 2), (2, 3, 6, 5, 5)),
    "conv2d_group_norm_tanh_hardswish_residual_logsumexp": (2, 1520, (3, 8, 3, 4, 1e-5), (2, 3, 9, 9)),
    "conv3d_group_norm_min_clamp_dropout": (2, 935, (3, 8, 3, 4, 0.0, 1.0, 0.2), (2, 3, 5, 7, 7)),
    "conv_transpose2d_batch_norm_tanh_max_pool_group_norm": (3, 1865, (3, 8, 5, 1, 1, 4, 4), (3, 3, 6, 6)),
    "linears_sigmoid_logsumexp": (2, 1410, (7, 9, 11), (6, 7)),
    "conv_transpose2d_min_sum_gelu_shift": (3, 1455, (3, 8, 3, 2, 1, 1, (1, 1, 1)), (2, 3, 5, 6)),
    "conv_transpose3d_layer_norm_avg_pool_gelu": (
        2, 1300, (3, 8, CUBE, PAIR, (1, 1, 1), (1, 1, 1), 1.0, (8,), PAIR), (2, 3, 3, 4, 4)
    ),
    "conv3d_max_pool_mean_shift_sum": (3, 1335, (3, 4, CUBE, 2.0, PAIR, (4, 1, 1, 1), 1), (2, 3, 6, 7, 8)),
    "conv3d_softmax_max_pools": (3, 1405, (3, 6, 3, 2), (2, 3, 9, 9, 9)),
}  # fmt: skip
REST = (  # which only have to be written
    "conv_transpose2d_mean_shift_logsumexp_scale",
    "conv3d_hardswish_group_norm_mean",
    "conv3d_scale_instance_norm_clamp_scale_max",
    "conv_transpose3d_logsumexp_silu_shift_clamp",
    "conv_transpose3d_mean_shift_softmax_tanh_scale",
)


@functools.cache
def module_of(name: str) -> build.Module:
    return build.rendered(build.compiled_either(ROOT / f"specs/kernelbench/{name}.yaml"))


def file_of(name: str, *dtypes: str) -> str:
    module = module_of(name)
    return standalone.text(module.text, "stable", dtypes or tuple(ELEMENTS), module.apart)


def executed(text: str) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(compile(text, "<string>", "exec"), space)
    assert "__file__" not in space
    return space


@functools.cache
def space_of(name: str) -> dict[str, Any]:
    return executed(file_of(name, "float32"))


def results(model: Any, x: Tensor) -> list[Tensor]:
    """A model's result, the gradients of its input and its parameters, and its buffers."""
    torch.manual_seed(3)  # of a dropout
    leaf = x.clone().requires_grad_()
    y = model(leaf)
    incoming = (torch.arange(y.numel()) % 7 - 2).reshape(y.shape).to(y.dtype)
    slopes = torch.autograd.grad(y, [leaf, *model.parameters()], incoming)
    return [y.detach(), *slopes, *(t for t in model.buffers() if t.is_floating_point())]


def assert_right(name: str) -> None:
    """A model in float32 is that in float64, which the file leaves to PyTorch's operations."""
    _, _, given, shape = MODELS[name]
    torch.manual_seed(1)
    model, x = space_of(name)["ModelNew"](*given), torch.randn(shape)
    exact = copy.deepcopy(model).double()
    own, wide = results(model, x), results(exact, x.double())
    assert own[0].dtype == torch.float32
    for a, b in zip(own, wide, strict=True):
        allowed = 1e-4 * max(float(b.abs().max()), 1)  # some gradients are 0 but for what cancels
        assert float((a.double() - b).abs().max()) <= allowed, name


@pytest.mark.few(4)
@pytest.mark.parametrize("name", [*MODELS, *REST])
def test_a_file_of_several_kernels_can_be_read(name: str) -> None:
    whole, module = file_of(name), module_of(name)
    kernels = [*module.apart]
    assert_readable(whole, MODELS.get(name, (0, 1540))[1])
    assert len(kernels) == MODELS.get(name, (len(kernels),))[0]
    assert whole.count("order of sums") <= 1
    formulas = module.text.split("#\n")[1]
    assert f"#\n{formulas}#\n" in whole
    assert whole.count("_kernel.cu") + 1 == len(kernels)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", MODELS)
def test_models_of_several_kernels_on_the_cpu(name: str) -> None:
    assert_right(name)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", MODELS)
def test_models_of_several_kernels_on_an_emulated_chip(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the file's calls launches its text for CUDA, which g++ has made."""
    space, texts, library = space_of(name), strings(file_of(name, "float32")), SimpleNamespace()
    for key, cuda in texts.items():
        if key.endswith("CUDA"):
            name_in_file = f"{key[:-4].lower()}on_cpu"
            setattr(library, name_in_file, emulated(cuda)[name_in_file])
    monkeypatch.setitem(space, "LIBRARY", library)
    assert_right(name)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", MODELS)
def test_nvcc_compiles_several_kernels(name: str, tmp_path: Path) -> None:
    texts = strings(file_of(name))
    for key in texts:
        if key.endswith("CUDA"):
            nvcc(texts[key], "sm_90", tmp_path)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch.compile does
def test_compilers_take_several_kernels() -> None:
    name = "conv_transpose3d_scale_batch_norm_mean"
    _, _, given, shape = MODELS[name]
    model, x = space_of(name)["ModelNew"](*given).eval(), torch.randn(shape)
    compiled: Any = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), model(x))


# Builds


def test_kernels_are_built_side_by_side(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One build has all texts, each in a file that keeps its time, by which ninja knows it."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    calls: list[list[str]] = []

    def load(name: str, sources: list[str], **given: Any) -> None:
        assert {*given} == {"is_python_module", "extra_cflags", "extra_cuda_cflags"}
        calls.append(sources)

    monkeypatch.setattr(cpp_extension, "load", load)
    text = file_of("conv3d_softmax_max_pools", "float32")
    space = executed(text)
    [paths] = calls
    cpus = {Path(path).name: Path(path).read_text(encoding="utf-8") for path in paths}
    wanted = {"shares_kernel.cpp": "SHARES_CPU", "pooled_kernel.cpp": "POOLED_CPU", "kernel.cpp": "CPU"}
    assert cpus == {file: space[key] for file, key in wanted.items()}
    times = [Path(path).stat().st_mtime_ns for path in paths]
    executed(text)
    assert [Path(path).stat().st_mtime_ns for path in calls[1]] == times


def test_a_build_that_fails_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    text = file_of("conv3d_softmax_max_pools", "float32").replace('CPU = r"""\n', 'CPU = r"""\n#error no\n')
    with pytest.raises(
        RuntimeError, match=r"(?s)^Error building extension 'conv3d.*kernel\.cpp.*#error no"
    ):
        executed(text)


# Names


def test_names_of_a_kernel_are_its_own() -> None:
    text = "def run(a):\n    # of run\n    return a.run(run, run=f'{NAME}::run {run}') + \"run\"\n"
    renamed = several_file._with_names(text, {"run": "first_run", "NAME": "FIRST_NAME"})
    assert renamed == (
        "def first_run(a):\n    # of run\n"
        "    return a.run(first_run, run=f'{FIRST_NAME}::run {first_run}') + \"run\"\n"
    )


def test_functions_that_are_alike_are_shared() -> None:
    """Functions of one text are one, unless they call functions that differ."""
    whole = file_of("conv3d_softmax_max_pools")
    heads = [line for line in whole.splitlines() if line.startswith(("def ", "class "))]
    names = [line.partition("(")[0] for line in heads]
    assert len(names) == len(set(names))
    assert {"def of_dims", "def pooled_run", "def run", "class PooledKernels", "class Kernels"} <= {*names}
    assert "def pooled_of_dims" not in names
    others = file_of("conv3d_group_norm_min_clamp_dropout")
    assert others.count("def along(") == 1  # the last helper of one kernel, and not that of the other
    assert "clamped_along" not in others
