"""The programs for NVRTC on the CPU: their kernels by g++, launched by the runtime's own launcher."""

import contextlib
import ctypes
import re
from dataclasses import dataclass
from typing import Any

import compiler
import pytest
import torch
from emulated import FLAGS, LAUNCH, PREFETCH, SANITIZER, SHARED

from fusegen.codegen import runtime_text
from fusegen.runtime import driver, program

CHIP = "90"
STANDARD = runtime_text.header("nvrtc/standard.h").replace("#pragma once\n", "", 1)
ATTRIBUTE = re.compile(r"^#define (\w+(?:\(...\))?) __attribute__.*", re.MULTILINE)  # of a kernel
QUIET = ["-D__builtin_assume(x)=", "-D__trap=abort"]
ENTRY = """
extern "C" void go(const void* call, int64_t blocks, int threads) {
  using namespace fusegen;
  constexpr int THREADS = FUSEGEN_DENSE ? CONFIGURATION.threads : 128;
  const auto kernel = compute<THREADS, FUSEGEN_DENSE ? CONFIGURATION.vectors : 0>;
  emulate(kernel, blocks, threads, 0, nullptr, *static_cast<const CallOf<FUSEGEN_KERNEL>*>(call));
}
extern "C" { int configuration[] = {fusegen::CONFIGURATION.threads, fusegen::CONFIGURATION.vectors}; }
"""
TURNS = 8  # more than the modules of the tests fill tables
FILLING = f"""
extern "C" void fill_all() {{
  for (int turn = 0; turn < {TURNS}; ++turn)
    emulate(fill, fusegen::MOST_FILLING / 128, 128, 0, nullptr, turn);
}}
"""


@dataclass(frozen=True)
class Launch:
    """A launch that was made: of which kernel, and the blocks and the threads of one."""

    of: program.KernelKey
    grid: tuple[int, int]


def library(kernels: Any, of: program.KernelKey) -> ctypes.CDLL:
    """The library that g++ makes of a program, whose tables are filled."""
    text = program.text_of(kernels.sources.cuda, of, CHIP)
    assert text.count(STANDARD) == 1
    text = text.replace(STANDARD, '#include "cuda_emulation.h"\n')
    filled = "#define FUSEGEN_FILLS" in text
    text = LAUNCH.sub(r"emulate(\1, \2, ", SHARED.sub(r"\1* const \2 = shared<\1>();", text))
    text = PREFETCH.sub("  fetched(from, bytes);", ATTRIBUTE.sub(r"#define \1", text))
    text += ENTRY + FILLING * filled
    made = ctypes.CDLL(str(compiler.library(text, ["-O1", *FLAGS, *SANITIZER, *QUIET])))
    if filled:
        made.fill_all()
    return made


def launched_on_cpu(patch: pytest.MonkeyPatch) -> list[Launch]:
    """Lets launchers run programs on the CPU; the launches that they make from now on."""
    launches: list[Launch] = []

    def compute(kernels: Any, of: program.KernelKey) -> program.Compute:
        made = library(kernels, of)
        threads, vectors = (ctypes.c_int * 2).in_dll(made, "configuration")
        return program.Compute((made, of), *((threads, vectors) if of.dense else (128, 1)))

    def launch(module: str, kernel: Any, grid: tuple[int, int], stream: int, argument: bytes) -> None:
        made, of = kernel
        launches.append(Launch(of, grid))
        made.go(argument, ctypes.c_int64(grid[0]), grid[1])

    patch.setattr(program, "compute", compute)
    patch.setattr(driver, "launch", launch)
    patch.setattr(driver, "launch_here", lambda module, device, *rest: launch(module, *rest))
    patch.setattr(driver, "OnDevice", lambda module, index: contextlib.nullcontext())
    patch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0, raising=False)
    return launches
