"""The convolution of few input channels with what comes behind it: CUDA's text in emulation."""

from __future__ import annotations

import ctypes
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import compiler
import pytest
import torch
from emulated import FLAGS, LAUNCH, MAX_RANK, SCALAR_TYPES, SHARED, STREAM, Guarded, State, call_type
from torch import Tensor
from torch.nn import functional

from fusegen.headers import inlined
from fusegen.runtime import producers

INCLUDE = Path(producers.__file__).parent / "include"
TF32 = re.compile(r'asm\("cvt\.rna.*?;\n')
MULTIPLY = re.compile(r"(void multiply_add\([^{]*\{\n).*?\n\}\n", re.DOTALL)
TEXT = """
#include "cuda/pointwise.cuh"
#include "cuda/reduce.cuh"
#include "cuda/thin_launch.cuh"
namespace fusegen { namespace {
struct Forward : Broadcasting<3, 1> { FUSEGEN_ELEMENT(out[0] = (in[0] + in[1]) * in[2]) };
}}
template <int THREADS, int GROUPS>
const char* launch(const fusegen::CallOf<fusegen::Forward>& call, const fusegen::Convolution& of) {
  cudaError_t error = cudaSuccess;
  bool fits = false;
  const auto as = [&](auto element) {
    using T = decltype(element);
    fits = fusegen::launch_thin_as<fusegen::Forward, T, float, THREADS, GROUPS>(call, of, error);
  };
  if (call.dtype == fusegen::FLOAT32) as(float());
  else if (call.dtype == fusegen::FLOAT16) as(__half());
  else as(__nv_bfloat16());
  return error != cudaSuccess ? cudaGetErrorString(error) : fits ? nullptr : "does not fit";
}
extern "C" {
const char* thin_64x2(const fusegen::CallOf<fusegen::Forward>& call, const fusegen::Convolution& of) {
  return launch<64, 2>(call, of);
}
const char* thin_128x4(const fusegen::CallOf<fusegen::Forward>& call, const fusegen::Convolution& of) {
  return launch<128, 4>(call, of);
}
}
"""


SIZES = ("channels", "height", "width", "out_channels", "out_height", "out_width")
SIZES += ("kernel_height", "kernel_width", "stride_y", "stride_x", "padding_y", "padding_x")
KERNELS = ("thin_64x2", "thin_128x4")


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


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernel as a library of the CPU."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    text = inlined(TEXT, lambda name: (INCLUDE / name).read_text(encoding="utf-8"))
    text, launches = LAUNCH.subn(r"emulate(\1, \2, ", f'#include "cuda_emulation.h"\n#include "warps.h"\n{text}')
    text, staged = SHARED.subn(r"\1* const \2 = shared<\1>();", text)
    text, rounded = TF32.subn("y = nearest_tf32(x);\n", text)
    text, multiplied = MULTIPLY.subn(r"\1  multiply_together(sum, a, b);\n}\n", text)
    assert (rounded, multiplied) == (1, 1)
    place = tmp_path_factory.mktemp("thin") / "thin.so"
    shutil.copy(compiler.library(text, ["-O1", *FLAGS]), place)
    loaded = ctypes.CDLL(str(place))
    for name in KERNELS:
        launch = getattr(loaded, name)
        launch.restype, launch.argtypes = ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_void_p]
    return loaded


def placed(values: Tensor, shift: int = 0) -> tuple[Guarded, Tensor]:
    """A copy of dense values between guards."""
    room = Guarded(values.numel(), values.dtype, shift)
    view = room.values.view(values.shape)
    view.copy_(values)
    return room, view


def convolved(
    library: ctypes.CDLL, name: str, case: Case, given: tuple[Tensor, ...], shift: int = 0
) -> Tensor:
    """The result of a kernel for an input, weights, and operands of four dimensions that broadcast."""
    state = State.in_dll(library, "emulation")
    state.shared = 232448
    rooms, (x, weight, *operands) = zip(*(placed(t, shift) for t in given), strict=True)
    room = Guarded(torch.Size(case.out).numel(), x.dtype, shift)
    out = room.values.view(case.out)
    call = call_type(4, 0)()
    call.numel, call.rank, call.dtype, call.stream = out.numel(), 4, SCALAR_TYPES[x.dtype], STREAM
    call.size[:4] = case.out
    for k, view in enumerate([*(t.expand(case.out) for t in operands), out], 1):
        call.data[k], call.stride[k][:4] = view.data_ptr(), view.stride()
    sizes = (case.inputs, *case.size, *case.out[1:], *case.kernel, *case.stride, *case.padding)
    of = Convolution(x.data_ptr(), weight.data_ptr(), *sizes)
    error = getattr(library, name)(ctypes.byref(call), ctypes.byref(of))
    assert error is None, error
    for each in (*rooms, room):
        each.check()
    return out.clone()


def values(case: Case, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, ...]:
    """An input, weights, a bias and a factor of each output."""
    torch.manual_seed(seed)
    shapes = ((case.batch, case.inputs, *case.size), (case.outputs, case.inputs, *case.kernel))
    return tuple(torch.randn(s).to(dtype) for s in (*shapes, (1, case.outputs, 1, 1), case.out))


def exact(case: Case, given: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """The result in float64, and the sum of the sizes of its terms."""
    x, weight, bias, factor = (t.double() for t in given)
    sizes = {"stride": case.stride, "padding": case.padding}
    y = (functional.conv2d(x, weight, **sizes) + bias) * factor
    return y, (functional.conv2d(x.abs(), weight.abs(), **sizes) + bias.abs()) * factor.abs()


CASES = {
    "as declared": Case(1, 8, (10, 34), 64),
    "one pixel": Case(1, 1, (3, 3), 1),
    "a pixel each": Case(2, 5, (4, 3), 3, (1, 1)),
    "a colour image": Case(2, 3, (21, 17), 33, (7, 7), (2, 2), (3, 3)),
    "narrow": Case(3, 2, (40, 5), 7, (5, 3), padding=(2, 1)),
    "wide": Case(1, 4, (3, 70), 16, (3, 1), (1, 2), (1, 0)),
    "the most channels": Case(1, 16, (9, 12), 40, (3, 3), (2, 1), (1, 2)),
    "more padding than image": Case(1, 2, (1, 2), 5, (2, 4), padding=(3, 5)),
    "two tiles a side": Case(1, 3, (23, 41), 8, (2, 2)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_a_convolution_is_that_of_float64(library: ctypes.CDLL, name: str, dtype: torch.dtype) -> None:
    """In float32 to 2^-21 of its terms; in 16 bits its sums are float's, rounded once."""
    case = CASES[name]
    given = values(case, dtype)
    y, terms = exact(case, given)
    error = (convolved(library, "thin_64x2", case, given).double() - y).abs()
    assert bool((error <= terms * 2**-21 + y.abs() * torch.finfo(dtype).eps / 2).all())
