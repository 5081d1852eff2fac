"""The convolution of few input channels by warpgroups: CUDA's text in emulation."""

import ctypes
from dataclasses import replace

import pytest
import torch
from emulated import State
from emulated import defined as defined
from test_thin_convolution import KINDS, assert_is_as_near_as_float32
from thin_cases import FACTOR, MOST, Case, Run, assert_near, built, convolved, values
from torch import Tensor
from torch.nn import functional

from fusegen.schedule.thin_convolution import Thin

HOPPER = Run(chip=90, threads=512)
CASES = {
    "as declared": Case(1, 8, (10, 34), 64),
    "several tiles": Case(3, 4, (37, 150), 64),
    "tiles side by side": Case(1, 4, (2, 300), 33, (1, 1)),
    "an odd width": Case(2, 5, (6, 63), 40, padding=(1, 1)),
    "two groups of channels": Case(1, 12, (9, 12), 100, (2, 2)),
    "every plane of a stride": Case(2, 7, (21, 17), 64, (5, 4), (2, 2), (3, 2)),
    "a stride of rows": Case(1, 8, (13, 10), 48, (3, 3), (2, 1), (0, 1)),
    "a stride of columns": Case(1, 8, (5, 29), 48, (2, 3), (1, 2), (1, 0)),
    "a pixel each": Case(2, 8, (4, 3), 64, (1, 1)),
    "more padding than image": Case(1, 4, (1, 2), 34, (2, 4), padding=(3, 5)),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels as a library of the CPU."""
    return built(tmp_path_factory.mktemp("warpgroups"))


@pytest.mark.parametrize("name", CASES)
def test_a_convolution_is_that_of_float64(library: ctypes.CDLL, name: str) -> None:
    given = values(CASES[name], torch.float32)
    assert_near(convolved(library, CASES[name], given, HOPPER), CASES[name], given)


OPERANDS: dict[str, tuple[int, ...]] = {
    "a number": (1, 1, 1, 1),
    "an image": (2, 1, 1, 1),
    "a row": (1, 1, 1, 9),
    "a column": (1, 1, 7, 1),
    "all of an image": (1, 37, 7, 9),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands_are_read_by_their_strides(library: ctypes.CDLL, name: str) -> None:
    case = Case(2, 4, (9, 11), 37)
    given = values(case, torch.float32, OPERANDS[name], case.out)
    assert_near(convolved(library, case, given, HOPPER), case, given)


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("width", [8, 7])
def test_pairs_are_written_where_they_are_aligned(library: ctypes.CDLL, width: int, shift: int) -> None:
    case = Case(1, 4, (5, width), 33)
    given = values(case, torch.float32)
    assert_near(convolved(library, case, given, replace(HOPPER, shift=shift)), case, given)


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_is_no_larger_than_that_of_float32(library: ctypes.CDLL, kind: str) -> None:
    assert_is_as_near_as_float32(library, kind, Case(1, 8, (18, 18), 64), HOPPER)


KERNELS = {"an even number of quads": (8, 3), "an odd one": (4, 3), "one": (4, 1)}  # channels, size


def of_a_value(case: Case, value: float, where: str) -> tuple[Tensor, ...]:
    """Tensors of which the last element of the input or of the weight has a value, and a channel is 0."""
    x, weight, bias, _ = values(case, torch.float32)
    weight[2] = 0.0
    (x[0, -1, -1, -1:] if where == "input" else weight[4, -1, -1, -1:]).fill_(value)
    return x, weight, bias, torch.full((1, 1, 1, 1), 1 / FACTOR)


@pytest.mark.few(10)
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan, 1e37, 1e17])
@pytest.mark.parametrize("where", ["input", "weight"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_what_is_not_finite_is_that_of_float32(
    library: ctypes.CDLL, value: float, where: str, kernel: str
) -> None:
    """Though the rest of an infinity is NaN."""
    channels, size = KERNELS[kernel]
    case = Case(1, channels, (8, 40), 40, (size, size))
    given = of_a_value(case, value, where)
    y = convolved(library, case, given, HOPPER)
    x, weight, bias, _ = (t.double() for t in given)
    expected = functional.conv2d(x, weight) + bias
    terms = functional.conv2d(x.abs(), weight.abs()) + bias.abs()
    assert y is not None
    assert torch.equal(y.isnan(), expected.isnan())
    alike = y.double() == expected.float().double()
    assert bool((alike | expected.isnan() | ((y.double() - expected).abs() <= 2**-20 * terms)).all())


def test_sums_that_overflow_are_infinite(library: ctypes.CDLL) -> None:
    """Though small products may overflow to an infinity of the other sign."""
    case = Case(1, 8, (8, 40), 40)
    x, weight, bias, _ = values(case, torch.float32)
    given = ((x.abs() + 1) * 1e25, (weight.abs() + 1) * 1e25, bias, torch.full((1, 1, 1, 1), 1 / FACTOR))
    y = convolved(library, case, given, HOPPER)
    assert y is not None
    assert bool((y == torch.inf).all())


FORMS = {  # the threads of a block, which tell the form
    "most rows are channels": (Case(1, 4, (5, 6), 33, (1, 1)), 512),
    "most rows are none": (Case(1, 4, (5, 6), 32, (1, 1)), 256),
    "most rows of the last are none": (Case(1, 4, (5, 6), 96, (1, 1)), 256),
    "fewer channels than a quad has": (Case(1, 3, (5, 6), 64, (1, 1)), 256),
    "too little shared memory": (Case(1, 4, (5, 6), 64, (1, 1)), 256),
}


@pytest.mark.parametrize("name", FORMS)
def test_warpgroups_run_where_they_are_faster(library: ctypes.CDLL, name: str) -> None:
    case, threads = FORMS[name]
    given = values(case, torch.float32)
    shared = 50_000 if name == "too little shared memory" else MOST
    run = replace(HOPPER, threads=threads, shared=shared)
    assert_near(convolved(library, case, given, run), case, given)


@pytest.mark.parametrize("name", [name for name in FORMS if name != "too little shared memory"])
def test_a_spec_knows_the_form(name: str) -> None:
    case, threads = FORMS[name]
    of = Thin(case.inputs, case.outputs, case.kernel, case.stride, case.padding)
    assert of.is_by_warpgroups == (threads == HOPPER.threads)


@pytest.mark.parametrize(
    ("chip", "dtype"), [(90, torch.bfloat16), (89, torch.float32), (100, torch.float32)]
)
def test_other_chips_and_dtypes_run_warps(library: ctypes.CDLL, chip: int, dtype: torch.dtype) -> None:
    case = Case(1, 4, (5, 6), 64, (1, 1))
    given, state = values(case, dtype), State.in_dll(library, "emulation")
    y = convolved(library, case, given, Run(chip=chip, threads=256))
    assert_near(y, case, given)
    assert state.threads == 256
