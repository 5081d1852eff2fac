"""Standalone files: their text, executed, and compared with a reference of higher precision."""

from __future__ import annotations

import ast
import ctypes
import functools
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import compiler
import pytest
import torch
from budget import FULL
from emulated import FLAGS
from kernels import GENERATED
from rows_emulated import on_cpu
from torch import Tensor

from fusegen.project import standalone

NVCC = shutil.which("nvcc")
HARNESS = re.compile(
    r"\b(try\s*:|except\b|pass\b)|import\s+(threading|multiprocessing|concurrent)|__future__"
)
TEXTS = re.compile(r"(?:[A-Z]+_)?(?:FUNCTIONS|CUDA|CPU)")  # of one kernel, or of several
TOLERANCES = {torch.float32: 3e-7, torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float64: 1e-13}
Draw = Callable[..., Tensor]
TESTED = [torch.float32, torch.bfloat16]
NAMES = [str(dtype)[6:] for dtype in TESTED]


@functools.cache
def file_of(name: str, *dtypes: str) -> str:
    module = (GENERATED / f"{name}.py").read_text(encoding="utf-8")
    return standalone.text(module, "stable", dtypes) if dtypes else standalone.text(module, "stable")


def strings(whole: str) -> dict[str, str]:
    """The C++ of a file."""
    space: dict[str, str] = {}
    assigned = [n for n in ast.parse(whole).body if isinstance(n, ast.Assign)]
    body = [n for n in assigned if TEXTS.fullmatch(ast.unparse(n.targets[0]))]
    exec(compile(ast.Module([*body], []), "<string>", "exec"), space)
    return space


@functools.cache
def executed(name: str, *dtypes: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function of a file, and what the file defines."""
    space: dict[str, Any] = {}
    exec(compile(file_of(name, *dtypes), "<string>", "exec"), space)
    assert "__file__" not in space
    return space[name.rpartition("/")[2]], space


def assert_readable(whole: str, lines: int) -> None:
    """A file has at most so many lines, none too long, and says what it gives up."""
    assert len(whole.splitlines()) <= lines
    assert max(map(len, whole.splitlines())) <= 120
    assert len(re.findall(r"^# Given up: \w", whole, re.MULTILINE)) == 1
    assert not HARNESS.search(whole)


def emulated(cuda: str) -> ctypes.CDLL:
    """The library of a file's text for CUDA, which launches on the CPU."""
    text = on_cpu(cuda).replace("on_cuda", "on_cpu")
    return ctypes.CDLL(str(compiler.library(text, ["-O0", *FLAGS, "-Wno-sign-compare"])))


def emulate(monkeypatch: pytest.MonkeyPatch, name: str, *dtypes: str) -> None:
    """Have a file launch its text for CUDA, which g++ has made."""
    _, space = executed(name, *dtypes)
    monkeypatch.setitem(space, "LIBRARY", emulated(strings(file_of(name, *dtypes))["CUDA"]))


def drawing(dtype: torch.dtype, seed: int = 1) -> Draw:
    generator = torch.Generator().manual_seed(seed)
    return lambda *size: torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)


def results(function: Callable[..., Any], given: list[Any]) -> list[Tensor]:
    """The results of a function, and its gradients."""
    own = [t.detach().requires_grad_() if _is_real(t) else t for t in given]
    given_back = function(*own)
    made = [given_back] if isinstance(given_back, Tensor) else [*given_back]
    steps = [torch.arange(y.numel()) % 29 - 11 for y in made]  # which every dtype has
    wanted = [(step / 8).reshape(y.shape).to(y.dtype) for step, y in zip(steps, made, strict=True)]
    return [
        *(y.detach() for y in made),
        *torch.autograd.grad(made, [t for t in own if _is_real(t)], wanted),
    ]


def _is_real(t: Any) -> bool:
    return isinstance(t, Tensor) and t.is_floating_point()


def wide(given: list[Any]) -> list[Any]:
    return [t.double() if _is_real(t) else t for t in given]


def assert_near(own: list[Tensor], exact: list[Tensor], times: float = 4) -> None:
    assert len(own) == len(exact)
    for a, b in zip(own, exact, strict=True):
        tolerance = times * TOLERANCES[a.dtype]
        size = float(b.abs().nan_to_num(0, 0, 0).max()) if b.numel() else 0.0
        torch.testing.assert_close(
            a.double(), b, rtol=tolerance, atol=1e-2 * tolerance * size, equal_nan=True
        )


def nvcc(text: str, chip: str, folder: Path) -> None:
    """Compile a text with the flags of PyTorch, which switch off the conversions of half types.

    PTX that nobody reads is optimised with FUSEGEN_FULL only: the compiler of C++ warns without it.
    """
    if NVCC is None:
        pytest.skip("nvcc is not installed")
    source = folder / "kernels.cu"
    source.write_text(text, encoding="utf-8")
    kinds = ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_CONVERSIONS", "HALF2_OPERATORS")
    off = [f"-D__CUDA_NO_{kind}__" for kind in kinds]
    made = ["-ptx", *([] if FULL else ["-Xcicc", "-O0"]), *off, "-o", str(folder / "a.ptx"), str(source)]
    command = [NVCC, "-std=c++20", f"-arch={chip}", "--fmad=false", *made]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
