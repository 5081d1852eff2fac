"""Operands of other shapes and layouts than the result's, on the CPU and in emulation of CUDA's text."""

from __future__ import annotations

import shutil
from types import ModuleType

import pytest
import torch
from emulated import Emulated, emulated, huge, launched, run
from emulated import defined as defined
from kernels import DTYPES, assert_same, compiled
from kernels import extensions as extensions
from torch import Tensor

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

BODY = "inputs: {x: {}, b: {}, r: {}}\nformula: silu(x + b) * r\n"
Shape = tuple[int, ...]
SHAPES: dict[str, tuple[Shape, Shape, Shape]] = {  # of x, of b and of r
    "channel": ((3, 5, 12, 14), (5, 1, 1), (3, 5, 12, 14)),
    "channel 7 x 7": ((3, 6, 7, 7), (6, 1, 1), (6, 1, 1)),
    "channel 126 x 126": ((2, 2, 126, 126), (2, 1, 1), ()),
    "channel 513 x 513": ((1, 2, 513, 513), (2, 1, 1), (2, 1, 1)),
    "row": ((37, 64), (64,), (37, 64)),
    "row 513": ((9, 513), (513,), (513,)),
    "column": ((37, 64), (37, 1), (37, 64)),
    "column and row": ((37, 65), (37, 1), (65,)),
    "value": ((21, 53), (), (21, 53)),
    "one element": ((21, 53), (1, 1), (1,)),
    "middle": ((3, 4, 5, 6), (4, 1, 6), (3, 1, 5, 1)),
    "five dimensions": ((2, 3, 4, 5, 6), (3, 1, 5, 1), (2, 1, 1, 1, 6)),
    "both ways": ((7, 1, 9), (1, 8, 1), (7, 8, 9)),
    "short rows": ((50, 8, 3), (8, 1), (50, 8, 3)),
    "no rows": ((0, 12), (12,), (0, 12)),
    "no columns": ((12, 0), (12, 1), ()),
}
ARRANGED = ("contiguous", "last dimension first", "first dimension last", "misaligned", "expanded")
EMULATED: dict[str, tuple[Shape, Shape, Shape]] = {  # of at most four dimensions that do not merge
    name: shapes for name, shapes in SHAPES.items() if len(shapes[0]) < 5 and 0 not in shapes[0]
}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(tmp_path_factory.mktemp("broadcast"), "broadcast_test", BODY)


@pytest.fixture(scope="module")
def emulation(module: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    return emulated(module, "broadcast_test", tmp_path_factory.mktemp("emulated"))


def tensors(shapes: tuple[Shape, ...], dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [(torch.randn(shape, generator=generator) * 3).to(dtype) for shape in shapes]


def arranged(values: Tensor, how: str) -> Tensor:
    """The same values, laid in memory in another way."""
    if how == "last dimension first":
        return values.mT.contiguous().mT if values.dim() > 1 else values
    if how == "first dimension last" and values.dim() > 1:
        return values.movedim(0, -1).contiguous().movedim(-1, 0)
    if how == "misaligned":
        return torch.cat([values.new_zeros(1), values.flatten()])[1:].view(values.shape)
    if how == "expanded" and values.dim() > 1 and values.shape[0] > 1:
        return values[:1].expand(values.shape)
    return values


def expanded(*given: Tensor) -> list[Tensor]:
    """The tensors in one shape, as views."""
    shape = torch.broadcast_shapes(*(t.shape for t in given))
    return [t.expand(shape) for t in given]


def spread(given: list[Tensor]) -> list[Tensor]:
    """The tensors in one shape, without gaps."""
    return [t.contiguous() for t in expanded(*given)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", ARRANGED)
def test_results_are_those_of_dense_tensors(module: ModuleType, how: str, dtype: torch.dtype) -> None:
    for name, shapes in SHAPES.items():
        x, b, r = tensors(shapes, dtype)
        for given in ([arranged(x, how), b, r], [x, b, arranged(r, how)], [x, arranged(b, how), r]):
            found, expected = module.FORWARD(*given), module.FORWARD(*spread(given))
            assert found.shape == expected.shape, name
            assert_same(found.contiguous(), expected, *spread(given))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_meet_within_rows(module: ModuleType, threads: int) -> None:
    """A thread begins at any element: 32,768 are no multiple of a row."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for shapes in (((1500, 7, 11), (7, 1), (11,)), ((200, 701), (701,), (200, 1))):
            given = tensors(shapes, torch.float32)
            assert_same(module.FORWARD(*given), module.FORWARD(*spread(given)), *spread(given))
    finally:
        torch.set_num_threads(before)


def test_written_over_and_into_strided_tensors(module: ModuleType) -> None:
    x, b, r = tensors(SHAPES["channel"], torch.float32)
    expected = module.FORWARD(*spread([x, b, r]))
    into = torch.full((3, 5, 12, 28), 7.0)
    module.FORWARD_OUT(x, b, r, into[..., ::2])
    assert_same(into[..., ::2].contiguous(), expected)
    assert bool((into[..., 1::2] == 7).all())
    over = x.clone()
    module.FORWARD_OUT(over, b, r, over)
    assert_same(over, expected)


@pytest.mark.parametrize(
    ("dtype", "chip"),
    [
        *((dtype, 70) for dtype in DTYPES),
        *((torch.float32, chip) for chip in (71, 72)),
        (torch.float16, 72),
    ],
)
@pytest.mark.parametrize("name", EMULATED)
def test_cuda_gives_what_it_gives_of_dense_tensors(
    emulation: Emulated, name: str, dtype: torch.dtype, chip: int
) -> None:
    emulation.forward.state.chip = chip
    given = tensors(EMULATED[name], dtype)
    expected = run(emulation.forward, *spread(given))[0]
    rank = max(t.dim() for t in given)
    for shift, operand in ((0, 0), (0, 1), (1, 0)):
        views = [t.view((1,) * (rank - t.dim()) + t.shape) for t in given]
        views[1] = arranged(views[1], "misaligned") if operand else views[1]
        found = run(emulation.forward, *expanded(*views), dense=False, shift=shift)[0]
        assert_same(found, expected, *spread(given))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cuda_reads_permuted_inputs_and_halves(emulation: Emulated, dtype: torch.dtype) -> None:
    x, b, r = tensors(((6, 5, 24), (5, 1), (5, 24, 6)), dtype)
    wide = tensors(((6, 5, 48),), dtype)[0]
    for given in ((x, b, r.permute(2, 0, 1)), (wide[..., :24], b, wide[..., 24:]), (wide[..., ::2], b, x)):
        found = run(emulation.forward, *expanded(*given), dense=False)[0]
        assert_same(found, run(emulation.forward, *spread(list(given)))[0], *spread(list(given)))


def test_cuda_cuts_more_than_2_31_elements_in_two(emulation: Emulated) -> None:
    """The far end of a column of rows, of which only the last blocks are run."""
    kernel, rows, columns = emulation.forward, 2**16 + 2, 2**15 + 8
    row, n = tensors(((columns,),), torch.float16)[0], rows * columns
    y, call = huge(n), kernel.call()
    call.data[:] = [row.data_ptr()] * 3 + [y.data_ptr()]
    call.numel, call.rank, call.dense, call.aligned, call.dtype = n, 2, False, True, 5
    call.size[:2] = (rows, columns)
    for k in range(4):
        call.stride[k][:2] = (columns * (k == 3), 1)
    kernel.state.first_block = (rows - 2**15) * columns // kernel.block(torch.float16) - 3
    try:
        launched(kernel, call, 2)
    finally:
        kernel.state.first_block = 0
    assert_same(y[-1000:], run(kernel, row, row, row)[0][-1000:])
