"""Convolutions of few input channels with a kernel behind them, in emulation: sizes, calls, results."""

import ctypes
import shutil
from dataclasses import dataclass
from pathlib import Path

import compiler
import pytest
import torch
from emulated import FLAGS, SANITIZER, SCALAR_TYPES, STREAM, Guarded, State, call_type
from thin_emulated import on_cpu
from torch import Tensor
from torch.nn import functional

from fusegen.core.header_files import inlined
from fusegen.core.launch import TILES
from fusegen.runtime import producers

INCLUDE = Path(producers.__file__).parent / "include"
CHIPS = dict(enumerate(TILES, 80))  # threads of a block, and groups of 8 pixels of a warp
SMALL = 80
ROWS = ", ".join(
    f"{{{chip}, fusegen::ANY, {threads}, {groups}}}" for chip, (threads, groups) in CHIPS.items()
)
TEXT = f"""
#define FUSEGEN_SM90A  // a flag of builds for sm_90a
#include "cuda/pointwise.cuh"
#include "cuda/reduce.cuh"
#include "cuda/thin_launch.cuh"
namespace fusegen {{ namespace {{
template <typename M>
struct Factor {{
  M factor;
  static Factor from(const double (&given)[1]) {{ return {{M(given[0])}}; }}
}};
struct Linear : Broadcasting<3, 1, Factor, 1> {{
  FUSEGEN_ELEMENT(out[0] = (in[0] + in[1]) * in[2] * p.factor)
}};
struct NoFormula {{}};
struct Tabulated : Broadcasting<3, 1, Factor, 1> {{
  using Methods = ByWidth<NoFormula, NoFormula, NoFormula>;
  FUSEGEN_ELEMENT(out[0] = in[0])
}};
}}}}
constexpr fusegen::Launch ROWS[] = {{{ROWS}, {{}}}};
FUSEGEN_CONVOLVED(linear, Linear, ROWS, ROWS)
FUSEGEN_CONVOLVED(tabulated, Tabulated, ROWS, ROWS)
"""
FACTOR = 0.5
MOST = 232448
SIZES: tuple[str, ...] = ("channels", "height", "width", "out_channels", "out_height", "out_width")
SIZES += ("kernel_height", "kernel_width", "stride_y", "stride_x", "padding_y", "padding_x")


class Convolution(ctypes.Structure):
    """The convolution, as the header has it."""

    _fields_ = [
        ("x", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        *((name, ctypes.c_int) for name in SIZES),
    ]


@dataclass(frozen=True)
class Case:
    """The sizes of a convolution."""

    batch: int
    inputs: int
    size: tuple[int, int]
    outputs: int
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)

    @property
    def out(self) -> tuple[int, int, int, int]:
        """The shape of the output."""
        each = zip(self.size, self.kernel, self.stride, self.padding, strict=True)
        height, width = ((size + 2 * pad - k) // step + 1 for size, k, step, pad in each)
        return self.batch, self.outputs, height, width


def built(folder: Path) -> ctypes.CDLL:
    """The kernels as a library of the CPU."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    text = on_cpu(inlined(TEXT, lambda name: (INCLUDE / name).read_text(encoding="utf-8")))
    place = folder / "thin.so"
    shutil.copy(compiler.library(text, ["-O1", *FLAGS, *SANITIZER]), place)
    loaded = ctypes.CDLL(str(place))
    for name in ("linear", "tabulated"):
        launch = getattr(loaded, f"{name}_convolved_launch")
        launch.restype, launch.argtypes = ctypes.c_char_p, [ctypes.c_void_p] * 3
    return loaded


def placed(values: Tensor, shift: int = 0) -> tuple[Guarded, Tensor]:
    """A copy of dense values between guards."""
    room = Guarded(values.numel(), values.dtype, shift)
    view = room.values.view(values.shape)
    view.copy_(values)
    return room, view


@dataclass(frozen=True)
class Run:
    """A run of a kernel.

    Attributes:
        name: its launch.
        chip, device: it runs on.
        shift: elements that tensors begin behind a 16-byte boundary.
        shared: bytes that a block may have.
        threads: of a block; by default those of warps.
    """

    name: str = "linear"
    chip: int = SMALL
    shift: int = 0
    shared: int = MOST
    device: int = 0
    threads: int = 0


def convolved(
    library: ctypes.CDLL, case: Case, given: tuple[Tensor, ...], run: Run | None = None
) -> Tensor | None:
    """The result for an input, weights and operands that broadcast; None where no kernel ran."""
    run = run or Run()
    state = State.in_dll(library, "emulation")
    state.chip, state.shared = run.chip, run.shared
    rooms, (x, weight, *operands) = zip(*(placed(t, run.shift) for t in given), strict=True)
    room = Guarded(torch.Size(case.out).numel(), x.dtype, run.shift)
    out = room.values.view(case.out)
    call = call_type(4, 1)()
    call.numel, call.rank, call.dtype, call.stream = out.numel(), 4, SCALAR_TYPES[x.dtype], STREAM
    call.size[:4], call.param[:], call.device = case.out, (FACTOR,), run.device
    for k, view in enumerate([*(t.expand(case.out) for t in operands), out], 1):
        call.data[k], call.stride[k][:4] = view.data_ptr(), view.stride()
    sizes = (case.inputs, *case.size, *case.out[1:], *case.kernel, *case.stride, *case.padding)
    of, fits = Convolution(x.data_ptr(), weight.data_ptr(), *sizes), ctypes.c_bool()
    launch, before = getattr(library, f"{run.name}_convolved_launch"), state.launches
    assert launch(ctypes.byref(call), ctypes.byref(of), ctypes.byref(fits)) is None
    assert state.launches == before + fits.value
    for each in (*rooms, room):
        each.check()
    assert not fits.value or state.threads == (run.threads or CHIPS[run.chip][0])
    return out.clone() if fits.value else None


def values(case: Case, dtype: torch.dtype, *shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """An input, weights, and operands: a bias, and a factor of each output if no shapes are given."""
    torch.manual_seed(0)
    first = ((case.batch, case.inputs, *case.size), (case.outputs, case.inputs, *case.kernel))
    operands = shapes or ((1, case.outputs, 1, 1), case.out)
    return tuple(torch.randn(shape).to(dtype) for shape in (*first, *operands))


def exact(case: Case, given: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """The result in float64, and the sum of the sizes of its terms."""
    x, weight, bias, factor = (t.double() for t in given)
    of = case.stride, case.padding
    y = (functional.conv2d(x, weight, None, *of) + bias) * factor * FACTOR
    terms = functional.conv2d(x.abs(), weight.abs(), None, *of) + bias.abs()
    return y, terms * factor.abs() * FACTOR


def assert_near(y: Tensor | None, case: Case, given: tuple[Tensor, ...]) -> None:
    """In float32 within 2^-21 of the sizes of the terms; in 16 bits the same, rounded once."""
    expected, terms = exact(case, given)
    assert y is not None
    error = (y.double() - expected).abs()
    assert bool((error <= terms * 2**-21 + expected.abs() * torch.finfo(y.dtype).eps / 2).all())
