"""The convolution of few input channels with what comes behind it: CUDA's text in emulation."""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import dataclass
from pathlib import Path

import compiler
import pytest
import torch
from emulated import FLAGS, SCALAR_TYPES, STREAM, Guarded, State, call_type
from emulated import defined as defined
from thin_emulated import on_cpu
from torch import Tensor
from torch.nn import functional

from fusegen.headers import inlined
from fusegen.launch import TILES
from fusegen.runtime import producers
from fusegen.thin import Thin

INCLUDE = Path(producers.__file__).parent / "include"
CHIPS = dict(enumerate(TILES, 80))  # threads of a block, and groups of 8 pixels of a warp
SMALL = 80
ROWS = ", ".join(
    f"{{{chip}, fusegen::ANY, {threads}, {groups}}}" for chip, (threads, groups) in CHIPS.items()
)
TEXT = f"""
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


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels as a library of the CPU."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    text = on_cpu(inlined(TEXT, lambda name: (INCLUDE / name).read_text(encoding="utf-8")))
    place = tmp_path_factory.mktemp("thin") / "thin.so"
    shutil.copy(compiler.library(text, ["-O1", *FLAGS]), place)
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
    """A run of a kernel: its chip, elements off a 16-byte boundary, bytes of shared memory, and device."""

    name: str = "linear"
    chip: int = SMALL
    shift: int = 0
    shared: int = MOST
    device: int = 0


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
    assert not fits.value or state.threads == CHIPS[run.chip][0]
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_a_convolution_is_that_of_float64(library: ctypes.CDLL, name: str, dtype: torch.dtype) -> None:
    given = values(CASES[name], dtype)
    assert_near(convolved(library, CASES[name], given), CASES[name], given)


@pytest.mark.parametrize("chip", CHIPS)
def test_tiles_are_those_of_the_chip(library: ctypes.CDLL, chip: int) -> None:
    case = Case(2, 3, (13, 19), 34, (3, 2), (1, 2), (0, 1))
    given = values(case, torch.float32)
    assert_near(convolved(library, case, given, Run(chip=chip)), case, given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shift", [0, 1, 2])
@pytest.mark.parametrize("width", [8, 6, 7, 32, 40, 66, 136])
def test_vectors_are_read_and_written_where_they_are_aligned(
    library: ctypes.CDLL, width: int, shift: int, dtype: torch.dtype
) -> None:
    """Of 16 bytes, of 8, or elements; in whole rows of the image, and in parts of them."""
    for kernel, padding in (((1, 1), (0, 0)), ((2, 3), (1, 1)), ((1, 6), (0, 5))):
        case = Case(1, 1, (5, width), 3, kernel, padding=padding)
        given = values(case, dtype)
        assert_near(convolved(library, case, given, Run(shift=shift)), case, given)


OPERANDS: dict[str, tuple[int, ...]] = {
    "a number": (1, 1, 1, 1),
    "a channel": (1, 5, 1, 1),
    "an image": (2, 1, 1, 1),
    "a row": (1, 1, 1, 9),
    "a column": (1, 1, 7, 1),
    "rows of channels": (1, 5, 1, 9),
    "all of an image": (1, 5, 7, 9),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands_are_read_by_their_strides(library: ctypes.CDLL, name: str) -> None:
    case = Case(2, 2, (9, 11), 5)
    for shapes in ((OPERANDS[name], case.out), (case.out, OPERANDS[name])):
        given = values(case, torch.float32, *shapes)
        assert_near(convolved(library, case, given), case, given)


KINDS = {
    "uniform": lambda x, w: (x.uniform_(), w),
    "a large range": lambda x, w: (x * torch.exp(4 * torch.randn(x.shape)), w),
    "cancelling": lambda x, w: (1000 + x.uniform_(), w - w.mean((1, 2, 3), keepdim=True)),
    "subnormal sums": lambda x, w: (x * 2**-70, w * 2**-70),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_is_no_larger_than_that_of_float32(library: ctypes.CDLL, kind: str) -> None:
    """Than the largest error of sums in float32, for which PyTorch's convolution on the CPU stands."""
    case = Case(1, 8, (18, 18), 32)
    x, weight, _, _ = values(case, torch.float32)
    x, weight = KINDS[kind](x, weight)
    given = (x, weight, torch.zeros(1, 32, 1, 1), torch.full((1, 1, 1, 1), 1 / FACTOR))
    y = convolved(library, case, given)
    assert y is not None
    expected = functional.conv2d(x.double(), weight.double())
    own, eager = ((each.double() - expected).abs() for each in (y, functional.conv2d(x, weight)))
    terms = functional.conv2d(x.abs().double(), weight.abs().double())
    assert float((own / terms).max()) <= max(float((eager / terms).max()), 2**-22)


def test_infinities_and_nan_are_those_of_float32(library: ctypes.CDLL) -> None:
    """Though a TF32 number of an infinity is one, and the rest NaN."""
    case = Case(1, 2, (8, 40), 8, (3, 3))
    x, weight, bias, _ = values(case, torch.float32)
    x[0, 0, 1, 1], x[0, 1, 4, 9], x[0, 0, 5, 30], x[0, 0, 6, 38] = torch.inf, -torch.inf, torch.nan, 1e37
    weight[1, 0, 0, 0], weight[2], weight[4, 1, 2, 2] = torch.inf, 0.0, torch.nan
    y = convolved(library, case, (x, weight, bias, torch.full((1, 1, 1, 1), 1 / FACTOR)))
    expected = functional.conv2d(x.double(), weight.double()) + bias.double()
    assert y is not None
    assert {*map(str, y.flatten().tolist())} >= {"inf", "-inf", "nan"}
    torch.testing.assert_close(y, expected.float(), rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("bits", [0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7FC00000])
def test_every_nan_is_one_beside_an_infinity(library: ctypes.CDLL, bits: int) -> None:
    """Though the nearest TF32 number of a NaN whose bits are all 1 would be a zero."""
    case = Case(1, 1, (3, 34), 2, (3, 3))
    nan = torch.tensor([bits], dtype=torch.uint32).view(torch.float32)
    for x_is_nan in (True, False):
        x, weight, bias, _ = (torch.ones_like(t) for t in values(case, torch.float32))
        x[0, 0, 0, 5] = torch.inf
        (x[0, 0, 2, 4:5] if x_is_nan else weight[1, 0, 1, 1:2]).copy_(nan)
        y = convolved(library, case, (x, weight, bias, torch.full((1, 1, 1, 1), 1 / FACTOR)))
        expected = functional.conv2d(x, weight) + bias
        assert y is not None
        assert torch.equal(y.isnan(), expected.isnan())
        assert torch.equal(y.isinf(), expected.isinf())


def test_a_block_takes_as_much_shared_memory_as_is_foreseen(library: ctypes.CDLL) -> None:
    for case in CASES.values():
        given = values(case, torch.float32)
        sizes = (case.kernel, case.stride, case.padding, (case.batch, *case.size))
        bytes_ = Thin(case.inputs, case.outputs, *sizes).shared
        largest = max(CHIPS)
        assert convolved(library, case, given, Run(chip=largest, shared=bytes_ - 1)) is None
        assert convolved(library, case, given, Run(chip=largest, shared=bytes_)) is not None


def test_a_device_is_told_once_of_a_kernels_shared_memory(library: ctypes.CDLL) -> None:
    """Of all that a block may have, so that a call that takes more finds it allowed."""
    state = State.in_dll(library, "emulation")
    told = []
    for inputs, device in ((9, 1), (9, 1), (16, 1), (16, 0)):
        case = Case(1, inputs, (6, 7), 1, (5, 5))
        given = values(case, torch.float32)
        before = state.told
        assert_near(convolved(library, case, given, Run(device=device)), case, given)
        told.append(state.told - before)
    assert told[:3] == [1, 0, 0]
    assert told[3] <= 1


def test_terms_without_end_run_none(library: ctypes.CDLL) -> None:
    """Though the elements of a tile, 511 rows of the input, are no number of 32 bits."""
    width = 5 * 2**20
    case = Case(1, 1, (1, width), 1, (1, width), (2, 1), (255, 0))
    given = values(case, torch.float32, (1, 1, 1, 1), (1, 1, 1, 1))
    assert convolved(library, case, given, Run(chip=max(CHIPS))) is None


def test_chips_before_tf32_run_none(library: ctypes.CDLL) -> None:
    case = CASES["one pixel"]
    assert convolved(library, case, values(case, torch.float32), Run(chip=75)) is None


def test_strides_above_2_run_none(library: ctypes.CDLL) -> None:
    for stride in ((3, 1), (1, 3), (2**31 - 1, 1)):
        case = Case(1, 1, (5, 5), 1, stride=stride)
        assert convolved(library, case, values(case, torch.float32)) is None


def test_only_formulas_of_up_to_32_bits_stand_behind_it(library: ctypes.CDLL) -> None:
    case = CASES["one pixel"]
    assert convolved(library, case, values(case, torch.float32), Run(name="tabulated")) is None
    assert convolved(library, case, values(case, torch.float64)) is None
