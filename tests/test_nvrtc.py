"""NVRTC: which compiler builds kernels for CUDA, what NVRTC compiles, and how machine code is kept."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernels import DTYPES, GENERATED, NAMES, by_class, generated

from fusegen.codegen import runtime_text
from fusegen.runtime import layouts, nvrtc, program, sources, tools
from fusegen.runtime.program import KernelKey

CODE = b"_Z7computeILi64ELi4EEvN7fusegen4CallILi2ELi0EEE\0"
NVRTC = nvrtc.Nvrtc(None, (13, 0), "libnvrtc.so.13")


@pytest.fixture
def cuda_13(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A PyTorch of CUDA 13."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    nvrtc.found.cache_clear()
    yield
    nvrtc.found.cache_clear()


@pytest.fixture
def compiler(cuda_13: None) -> nvrtc.Nvrtc:
    """The NVRTC of this machine."""
    found = nvrtc.found()
    if found is None or found.version[0] != 13:
        pytest.skip("no NVRTC of CUDA 13: pip install 'nvidia-cuda-nvrtc==13.*'")
    return found


def kernels_of(cuda: str) -> Any:
    """As much of an `Activation` as programs need."""
    return SimpleNamespace(
        name="m", sources=SimpleNamespace(cuda=cuda), operators=SimpleNamespace(name="fusegen_m_012345")
    )


def of(dtype: torch.dtype = torch.float32, dense: bool = True, kernel: str = "forward") -> KernelKey:
    return KernelKey(kernel, dtype, dense, 0)


# What NVRTC compiles


@pytest.mark.few(1)
@pytest.mark.parametrize("name", by_class(NAMES))
def test_every_kernel_compiles(name: str, compiler: nvrtc.Nvrtc) -> None:
    """The name of a kernel has its launch configuration: that of the largest tensors on the chip."""
    module = generated(name)
    wanted = [(kernel, dtype) for kernel in ("forward", "backward") for dtype in module.KERNELS.dtypes]
    for kernel, dtype in wanted if name in ("gelu", "swiglu") else wanted[::4]:
        for dense in (True, False):
            text = program.text_of(module.KERNELS.sources.cuda, of(dtype, dense, kernel), "90")
            code = nvrtc.compiled(compiler, text, "90", nvrtc.include_folders(name))
            _, threads, vectors = program.named(code)
            assert threads in (64, 128, 256)
            assert vectors in ((1, 2, 4) if dense else (0,))


def test_the_launch_configuration_is_that_of_the_chip(compiler: nvrtc.Nvrtc) -> None:
    """Gelu in float32 on sm_80 and newer: 64 threads a block and 4 vectors a thread."""
    text = program.text_of(generated("gelu").KERNELS.sources.cuda, of(), "90")
    code = nvrtc.compiled(compiler, text, "90", nvrtc.include_folders("gelu"))
    assert program.named(code)[1:] == (64, 4)


@pytest.mark.parametrize(("name", "filled"), [("gelu", True), ("relu", False)])
def test_kernels_with_tables_have_one_that_fills_them(
    name: str, filled: bool, compiler: nvrtc.Nvrtc
) -> None:
    text = program.text_of(generated(name).KERNELS.sources.cuda, of(torch.float16), "90")
    assert (b".text.fill" in nvrtc.compiled(compiler, text, "90", nvrtc.include_folders(name))) is filled


def test_a_text_that_does_not_compile_leaves_a_log(
    compiler: nvrtc.Nvrtc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr(KernelKey, "architecture", "90")
    with pytest.raises(RuntimeError) as told:
        program.code_of(kernels_of('#include "cuda/pointwise.cuh"\nint x = y;\n'), of())
    [log] = (tmp_path / "fusegen").glob("*.log")
    sentence = "the forward kernel did not compile with NVRTC for sm_90; its output is in"
    assert str(told.value) == f"m: {sentence} {log}"
    assert 'identifier "y" is undefined' in log.read_text()


@pytest.mark.parametrize("name", ["gelu", "mish_mish", "conv_relu_hardswish"])
def test_a_standalone_file_holds_the_headers_of_its_program(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (GENERATED / f"{name}.py").read_text(encoding="utf-8")
    own = runtime_text.needed("stable", (text,))
    monkeypatch.setattr(sources, "header", lambda name: own[f"include/{name}"])
    assert "compute(const" in sources.program(generated(name).KERNELS.sources.cuda)


# Which compiler


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without nvcc."""
    monkeypatch.setattr(tools, "USUAL", str(tmp_path))
    for name in ("CUDA_HOME", "CUDA_PATH", "PYTORCH_NVCC", tools.COMPILER):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


CHOICES = [  # the variable, whether nvcc and NVRTC are there, and what compiles
    ("", True, True, "nvcc"),
    ("", False, True, "nvrtc"),
    ("", False, False, "nvcc"),  # which says what to install
    ("nvcc", False, True, "nvcc"),
    ("nvrtc", True, False, "nvrtc"),
]


@pytest.mark.parametrize(("variable", "nvcc", "rtc", "chosen"), CHOICES)
def test_the_compiler(
    variable: str,
    nvcc: bool,
    rtc: bool,
    chosen: str,
    absent: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(nvrtc, "found", lambda: NVRTC if rtc else None)
    if nvcc:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "nvcc").touch()
        monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    if variable:
        monkeypatch.setenv(tools.COMPILER, variable)
    assert tools.cuda_compiler("m") == chosen


def test_another_compiler_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tools.COMPILER, "clang")
    sentence = "m: FUSEGEN_CUDA_COMPILER is 'clang'; it must be nvcc or nvrtc"
    with pytest.raises(RuntimeError, match=f"^{sentence}$"):
        tools.cuda_compiler("m")


OTHERS = [
    (None, "13.0", "m: no NVRTC; pip install 'nvidia-cuda-nvrtc==13.*'"),
    (None, "12.8", "m: no NVRTC; pip install 'nvidia-cuda-nvrtc-cu12==12.*'"),
    (
        *(nvrtc.Nvrtc(None, (12, 8), "/x/libnvrtc.so.12"), "13.0"),
        "m: NVRTC in /x/libnvrtc.so.12 is of CUDA 12.8, and this PyTorch has CUDA 13.0; "
        "pip install 'nvidia-cuda-nvrtc==13.*'",
    ),
]


@pytest.mark.parametrize(("found", "cuda", "sentence"), OTHERS)
def test_the_nvrtc_of_another_cuda_is_one_sentence(
    found: nvrtc.Nvrtc | None, cuda: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(nvrtc, "found", lambda: found)
    with pytest.raises(RuntimeError, match=f"^{re.escape(sentence)}$"):
        nvrtc.required("m")


def test_missing_headers_are_one_sentence(cuda_13: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_folders", lambda kind: iter(()))
    sentence = "m: no cuda_fp16.h; pip install 'nvidia-cuda-runtime==13.*'"
    with pytest.raises(RuntimeError, match=f"^{re.escape(sentence)}$"):
        nvrtc.include_folders("m")


# Machine code that is kept


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The texts that are compiled, by an NVRTC that makes the same of each."""
    texts: list[str] = []

    def compile_(library: Any, text: str, *_: Any) -> bytes:
        texts.append(text)
        return CODE

    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr(KernelKey, "architecture", "90")
    monkeypatch.setattr(nvrtc, "required", lambda module: NVRTC)
    monkeypatch.setattr(nvrtc, "include_folders", lambda module: [])
    monkeypatch.setattr(nvrtc, "compiled", compile_)
    return texts


def test_machine_code_is_compiled_once(compiled: list[str], tmp_path: Path) -> None:
    kernels = kernels_of("// text\n")
    assert [program.code_of(kernels, of()) for _ in range(2)] == [CODE, CODE]
    assert len(compiled) == 1
    assert program.code_of(kernels_of("// another comment\n"), of()) == CODE
    assert len(compiled) == 1
    [path] = (tmp_path / "fusegen").glob("*.cubin")
    assert re.fullmatch(r"forward_float32_dense_sm90_[0-9a-f]{16}\.cubin", path.name)


@pytest.mark.parametrize("other", [of(torch.float16), of(dense=False), of(kernel="backward")], ids=str)
def test_each_kernel_has_its_own_code(other: KernelKey, compiled: list[str]) -> None:
    for each in (of(), other):
        program.code_of(kernels_of("x\n"), each)
    assert len(set(compiled)) == 2


def test_damaged_code_is_compiled_again(compiled: list[str], tmp_path: Path) -> None:
    program.code_of(kernels_of("x\n"), of())
    [path] = (tmp_path / "fusegen").glob("*.cubin")
    path.write_bytes(CODE[:-1])
    assert program.code_of(kernels_of("x\n"), of()) == CODE
    assert (len(compiled), path.read_bytes()) == (2, CODE)


def test_all_dtypes_have_numbers() -> None:
    assert set(layouts.NUMBERS) == set(DTYPES)
