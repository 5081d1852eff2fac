"""A product of matrices: CUDA's text run on the CPU."""

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import compiler
import torch
from emulated import FLAGS, LAUNCH, SHARED, State
from torch import Tensor

from benchmarks.products import Product
from fusegen.runtime import linear_facts, linear_operator

HEAD = '#define FUSEGEN_SM90A\n#include "cuda_emulation.h"\n#include "products.h"\n'
HEAD += "#include <algorithm>\n#include <atomic>\n"
BODIES = {  # by the head of a function, which has instructions of the chip, its body on the CPU
    "uint32_t place_of(": "return place_in_shared(shared);",
    "void start_barrier(": "start_phases(&of, arrivals);",
    "void arrive(CopyBarrier": "arrive_with(&of, 0);",
    "void arrive_before(": "arrive_with(&of, bytes);",
    "void wait_for(": "wait_for_phase(&of, parity);",
    "void copy_box(": "copy_box_at_once(to, of, &told, column, row);",
    "void multiply_halves(SumsOfThread<128>": "multiply_terms<16, ONTO == Onto::ZERO>(sums, left, right);",
    "void multiply_halves(SumsOfThread<64>": "multiply_terms<16, ONTO == Onto::ZERO>(sums, left, right);",
    "void multiply_tf32(": "multiply_terms<8, ONTO == Onto::ZERO>(sums, left, right);",
    "void add_halves(": "multiply_in_warp<16>(sums, left, right);",
    "void add_tf32(": "multiply_in_warp<8>(sums, left, right);",
    "uint4 load_matrices(": "return loaded_matrices(row);",
    "void copy_quad(void* to, const float* from)": "__pipeline_memcpy_async(to, from, 16);",
    "void copy_quad(void* to, const float* from, int bytes)": (
        "__pipeline_memcpy_async(to, from, 16, size_t(16 - bytes));"
    ),
    "void wait_at(": "wait_among(barrier, 2 * WARPGROUP);",
    "void arrive_at(": "arrive_among(barrier, 2 * WARPGROUP);",
}
ONE_LINE = re.compile(r"(uint32_t place_of\([^{]*\{) return [^}]*\}\n")
WAITING = (
    "SPLIT_THREADS, 0, ",
    "ADDING_THREADS, 0, ",
)  # blocks without memory of their size whose threads wait
ROOM = 256 << 10  # bytes of shared memory


def on_cpu(text: str) -> str:
    """A text with its headers, whose launches, shared memory, products and barriers run on the CPU."""
    text = ONE_LINE.sub(r"\1\n  return 0;\n}\n", text)
    for head, body in BODIES.items():
        function = re.compile(rf"({re.escape(head)}[^{{]*\{{)(?:\n.*?\n\}}\n| [^\n]*\}}\n)", re.DOTALL)
        text, count = function.subn(rf"\1\n  {body}\n}}\n", text)
        assert count == 1, head
    for launch in WAITING:
        assert text.count(launch) == 1
        text = text.replace(launch, launch.replace("0", "1"))
    text = SHARED.sub(r"\1* const \2 = shared<\1>();", text)
    return HEAD + LAUNCH.sub(r"emulate(\1, \2, ", text)


def text_of(kernel: str) -> str:
    """The text of a library: of the kernel for terms together, or for terms apart."""
    other = {"together": "APART", "apart": "TOGETHER"}[kernel]
    return f"#define WITHOUT_{other}\n{linear_operator.texts_of_kernels().cuda}"


def built(kernel: str, text: str | None = None) -> ctypes.CDLL:
    """The library of the CPU that g++ makes of a kernel's text."""
    path: Path = compiler.library(on_cpu(text or text_of(kernel)), ["-O1", *FLAGS])
    library = ctypes.CDLL(str(path))
    state = State.in_dll(library, "emulation")
    state.shared, state.chip = ROOM, 90
    return library


class Layer(NamedTuple):
    """A layer of a matrix, and for how many levels of its sums there is memory."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None = None
    levels: int = 0


def product(library: ctypes.CDLL, kernel: str, layer: Layer, chip: int = 90) -> Tensor:
    """The layer of a matrix by an emulated kernel, on a chip."""
    launch = getattr(library, f"linear_{kernel}_launch")
    launch.restype = ctypes.c_char_p
    State.in_dll(library, "emulation").chip = chip
    return launched(lambda of: launch(of, 0, None), layer, kernel)


def multiplied(launch: Any, call: ctypes.Structure, layer: Layer) -> Tensor:
    """The layer of a matrix and the kernel behind it, which has a call, as one emulated kernel."""
    launch.restype = ctypes.c_char_p
    return launched(lambda of: launch(ctypes.byref(call), of), layer, "together")


def in_rows(matrix: Tensor) -> Tensor:
    """A matrix in memory whose rows begin at multiples of 16 bytes, with numbers between."""
    rows, columns = matrix.shape
    return torch.full((rows, (columns + 3) // 4 * 4), 7.0)[:, :columns].copy_(matrix)


def launched(launch: Callable[[Any], Any], layer: Layer, kernel: str) -> Tensor:
    """The result of a launch, which is given a product."""
    (x, weight, bias, levels), apart = layer, kernel == "apart"
    stored, x = in_rows(weight.t() if apart else weight), in_rows(x)
    columns, terms = x.shape
    out = torch.full((columns, weight.shape[0]), float("nan"))
    largest, norm = linear_facts.facts_of(weight)
    halves = torch.empty(columns * ((terms + 31) // 32 * 32) * 4, dtype=torch.uint8)
    known = torch.empty(1 + (columns + 63) // 64 + columns, dtype=torch.int32)
    sums = torch.full((levels, columns, weight.shape[0]), float("nan"))
    of = Product(
        stored.data_ptr(), x.data_ptr(), None if bias is None else bias.data_ptr(), out.data_ptr(),
        stored.stride(0), x.stride(0), weight.shape[0], columns, terms,
        largest.data_ptr(), norm.data_ptr(), int(apart), halves.data_ptr(), known.data_ptr(),
        sums.data_ptr() if levels else None, 0,
    )  # fmt: skip
    error = launch(ctypes.byref(of))
    assert error is None, error
    return out
