"""The convolution of few input channels with what comes behind it: CUDA's text in emulation."""

import ctypes

import pytest
import torch
from emulated import State
from emulated import defined as defined
from thin_cases import CHIPS, FACTOR, Case, Run, assert_near, built, convolved, values
from torch.nn import functional

from fusegen.schedule.thin_convolution import Thin

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
    return built(tmp_path_factory.mktemp("thin"))


@pytest.mark.few
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


@pytest.mark.few
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


def assert_is_as_near_as_float32(library: ctypes.CDLL, kind: str, case: Case, run: Run) -> None:
    """The largest error is that of sums in float32, for which PyTorch's convolution on the CPU stands."""
    x, weight, _, _ = values(case, torch.float32)
    x, weight = KINDS[kind](x, weight)
    given = (x, weight, torch.zeros(1, case.outputs, 1, 1), torch.full((1, 1, 1, 1), 1 / FACTOR))
    y = convolved(library, case, given, run)
    assert y is not None
    expected = functional.conv2d(x.double(), weight.double())
    own, eager = ((each.double() - expected).abs() for each in (y, functional.conv2d(x, weight)))
    terms = functional.conv2d(x.abs().double(), weight.abs().double())
    assert float((own / terms).max()) <= max(float((eager / terms).max()), 2**-22)


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_is_no_larger_than_that_of_float32(library: ctypes.CDLL, kind: str) -> None:
    assert_is_as_near_as_float32(library, kind, Case(1, 8, (18, 18), 32), Run())


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
