"""Direct builds for the CPU: the headers that they read in place of larger ones."""

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from processes import ANSWER, USE, script, told
from torch import Tensor
from torch.utils.cpp_extension import include_paths

from fusegen.codegen import runtime_text
from fusegen.runtime import direct, flavour
from fusegen.runtime.sources import header

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
CONVERSIONS = """
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>
#include <immintrin.h>
#include "cpu/elements.h"
#ifndef FUSEGEN_HALF_H
#error the header is not in its place
#endif
using namespace fusegen;
template <class T>
void both(const float* wide, T* narrowed, const T* narrow_, float* widened, int64_t n, int64_t one_by_one) {
  if (one_by_one) for (int64_t k = 0; k < n; ++k) narrowed[k] = T(wide[k]), widened[k] = load(narrow_[k]);
  else narrow(wide, narrowed, n), widen(narrow_, widened, n);
}
#define BOTH(T) \\
  (const float* a, c10::T* b, const c10::T* c, float* d, int64_t n, int64_t e) { both(a, b, c, d, n, e); }
extern "C" void float16 BOTH(Half)
extern "C" void bfloat16 BOTH(BFloat16)
static_assert(std::numeric_limits<c10::Half>::digits == 11, "");
"""
HAS_F16C = "f16c" in Path("/proc/cpuinfo").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def conversions(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The conversions of the headers that a direct build reads."""
    folder = tmp_path_factory.mktemp("conversions")
    for path, name in flavour.SYSTEM.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(header(name), encoding="utf-8")
    (folder / "main.cpp").write_text(CONVERSIONS, encoding="utf-8")
    includes = [
        "-I.",
        f"-I{ROOT / 'fusegen/runtime/include'}",
        *(f"-isystem{each}" for each in include_paths()),
    ]
    flags = ["-std=c++17", "-O0", "-mavx2", "-mf16c", "-w", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, *includes, "main.cpp", "-o", "made.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "made.so"))


def bits(tensor: Tensor) -> Tensor:
    """The bits of numbers, of each NaN the same."""
    kind = torch.int32 if tensor.dtype == F32 else torch.int16
    return torch.where(tensor.isnan(), torch.full_like(tensor, torch.nan), tensor).view(kind)


@pytest.mark.skipif(not HAS_F16C, reason="needs the instructions F16C")
@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("one_by_one", [0, 1])
def test_conversions_are_pytorchs(dtype: torch.dtype, one_by_one: int, conversions: ctypes.CDLL) -> None:
    """Of every 16-bit value, of midpoints between neighbours and what lies beside them, and of others."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    midpoints = (every.float().view(torch.int32) & -0x10000) + 0x8000
    if dtype == F16:
        midpoints = ((every.double() + every.roll(1).double()) / 2).float().view(torch.int32)
    others = torch.arange(-(2**31), 2**31, 65521, dtype=torch.int64).to(torch.int32)
    wide = torch.cat([midpoints, midpoints + 1, midpoints - 1, others]).view(F32)
    narrow = every.repeat(len(wide) // len(every) + 1)[: len(wide)].contiguous()
    wide, narrow = wide[1:], narrow[1:]  # at addresses that no vector has
    narrowed, widened = (torch.empty(1 + len(wide), dtype=each.dtype)[1:] for each in (narrow, wide))
    pointers = (ctypes.c_void_p(each.data_ptr()) for each in (wide, narrowed, narrow, widened))
    function = conversions[str(dtype).rpartition(".")[2]]
    function(*pointers, ctypes.c_int64(len(wide)), ctypes.c_int64(one_by_one))
    assert torch.equal(bits(narrowed), bits(wide.to(dtype)))
    assert torch.equal(bits(widened), bits(narrow.float()))


def test_the_compiler_copies_the_headers_that_the_runtime_reads() -> None:
    apart = {"stable_abi_by_dtype.h", "stable_abi_parallel.h"}
    assert {*runtime_text.SYSTEM} == {*apart, *flavour.SYSTEM.values()}
    assert direct.THREADS == '#include "stable_abi_parallel.h"\n'


def test_a_build_reads_none_of_pytorchs_headers(tmp_path: Path) -> None:
    """But on a CPU without the conversions of float16, for which PyTorch's headers have functions."""
    headers = tmp_path / "headers"
    compiler = script(tmp_path, "listing", f'exec c++ -H "$@" 2>> {headers}\n')
    assert told(USE, tmp_path / "builds", CXX=compiler) == ANSWER
    lines = headers.read_text(encoding="utf-8").splitlines()
    read = {line.lstrip(". ") for line in lines if re.match(r"\.+ ", line)}
    assert any(path.endswith("/algorithm") for path in read)
    found = {path for path in read if "/torch/include/" in path or path.endswith("include/immintrin.h")}
    assert not found or torch.backends.cpu.get_cpu_capability() == "DEFAULT"
