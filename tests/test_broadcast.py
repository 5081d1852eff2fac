"""Operands of other shapes and layouts than the result's, on the CPU and in emulation of CUDA's text."""

import shutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from emulated import Emulated, emulated, huge, launched, run, run_sums
from emulated import defined as defined
from kernels import DTYPES, assert_same, compiled
from torch import Tensor
from torch.nn.functional import silu

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

BODY = "inputs: {x: {}, b: {shape: [1]}, r: {}}\nformula: silu(x + b) * r\n"
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
SUMMED = {  # few blocks, each of whose threads is one of the CPU
    "channel": ((2, 3, 6, 7), (3, 1, 1), (2, 3, 6, 7)),
    "parts of a row": ((1, 2, 4105), (2, 1), ()),
    "row": ((37, 24), (24,), (37, 24)),
    "row and value": ((150, 13), (13,), ()),
    "column and row": ((17, 25), (17, 1), (25,)),
    "middle": ((3, 4, 5, 6), (4, 1, 6), (3, 1, 5, 1)),
    "both ways": SHAPES["both ways"],
}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled(tmp_path_factory.mktemp("broadcast"), "broadcast_test", BODY)


@pytest.fixture(scope="module")
def emulation(module: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    return emulated(module, "broadcast_test", tmp_path_factory.mktemp("emulated"))


def tensors(shapes: tuple[Shape, ...], dtype: torch.dtype, seed: int = 7) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(shape, generator=generator) * 3).to(dtype) for shape in shapes]


def incoming(shapes: tuple[Shape, ...], dtype: torch.dtype) -> Tensor:
    """The gradient of the result."""
    return tensors((tuple(expanded(*(torch.zeros(s) for s in shapes))[0].shape),), dtype, 11)[0]


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
    broadcast: Any = torch.broadcast_shapes
    shape = broadcast(*(t.shape for t in given))
    return [t.expand(shape) for t in given]


def spread(given: list[Tensor]) -> list[Tensor]:
    """The tensors in one shape, without gaps."""
    return [t.contiguous() for t in expanded(*given)]


@pytest.mark.few(1)
@pytest.mark.together
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", ARRANGED)
def test_results_are_those_of_dense_tensors(module: ModuleType, how: str, dtype: torch.dtype) -> None:
    for name, shapes in SHAPES.items():
        x, b, r = tensors(shapes, dtype)
        for given in ([arranged(x, how), b, r], [x, b, arranged(r, how)], [x, arranged(b, how), r]):
            found, expected = module.KERNELS.forward(*given), module.KERNELS.forward(*spread(given))
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
            assert_same(
                module.KERNELS.forward(*given), module.KERNELS.forward(*spread(given)), *spread(given)
            )
    finally:
        torch.set_num_threads(before)


def test_written_over_and_into_strided_tensors(module: ModuleType) -> None:
    x, b, r = tensors(SHAPES["channel"], torch.float32)
    expected = module.KERNELS.forward(*spread([x, b, r]))
    into = torch.full((3, 5, 12, 28), 7.0)
    module.KERNELS.forward_out(x, b, r, into[..., ::2])
    assert_same(into[..., ::2].contiguous(), expected)
    assert bool((into[..., 1::2] == 7).all())
    over = x.clone()
    module.KERNELS.forward_out(over, b, r, over)
    assert_same(over, expected)


@pytest.mark.few(3)
@pytest.mark.together
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
    kernel.state.chip = 70
    kernel.state.first_block = (rows - 2**15) * -(-columns // kernel.block(torch.float16)) - 3
    try:
        launched(kernel, call, 2)
    finally:
        kernel.state.first_block = 0
    assert_same(y[-1000:], run(kernel, row, row, row)[0][-1000:])


def exact(given: list[Tensor], grad: Tensor) -> list[Tensor]:
    """The gradients in float64, and for each a bound of the sizes of what is added up."""
    x, b, r = (t.double().clone().requires_grad_() for t in given)
    torch.autograd.backward(silu(x + b) * r, grad.double())
    with torch.no_grad():
        each = grad.double().abs() * (1 + r.abs()) * (1 + x.abs() + b.abs())
    right: list[Any] = [x.grad, b.grad, r.grad]
    return right + [each.sum_to_size(t.shape) for t in given]


def near(found: list[Tensor], given: list[Tensor], grad: Tensor) -> None:
    """Each gradient has its tensor's shape, and errs by a unit of what is added up."""
    right = exact(given, grad)
    for actual, t, expected, size in zip(found, given, right, right[3:], strict=False):
        assert (actual.shape, actual.dtype) == (t.shape, t.dtype)
        unit, least = torch.finfo(t.dtype).eps, torch.finfo(t.dtype).smallest_normal
        assert bool(((actual.double() - expected).abs() <= 2 * unit * (size + least)).all())


@pytest.mark.few(1)
@pytest.mark.together
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", ARRANGED)
def test_gradients_are_summed_to_the_shape_of_their_tensor(
    module: ModuleType, how: str, dtype: torch.dtype
) -> None:
    for shapes in SHAPES.values():
        x, b, r = tensors(shapes, dtype)
        grad = incoming(shapes, dtype)
        for given in ([arranged(x, how), b, r], [x, b, arranged(r, how)]):
            near(list(module.KERNELS.backward(grad, *given)), given, grad)
        near(list(module.KERNELS.backward(arranged(grad, how), x, b, r)), [x, b, r], arranged(grad, how))


@pytest.mark.full
def test_sums_are_the_same_in_every_run_and_whatever_the_threads(module: ModuleType) -> None:
    before, shapes = torch.get_num_threads(), ((300, 40, 31), (40, 1), ())
    given, grad = tensors(shapes, torch.float32), incoming(shapes, torch.float32)
    expected = module.KERNELS.backward(grad, *given)
    try:
        for threads in (1, 2, 3, 7, before):
            torch.set_num_threads(threads)
            for found, first in zip(module.KERNELS.backward(grad, *given), expected, strict=True):
                assert_same(found, first)
    finally:
        torch.set_num_threads(before)


@pytest.mark.full
@pytest.mark.parametrize(
    "shapes", [((2, 3, 4), (3, 1), (4,)), ((3, 1), (4,), ()), ((2, 2), (2, 1), (2, 2))]
)
def test_derivatives_of_any_order_agree_with_differences(
    module: ModuleType, shapes: tuple[Shape, ...]
) -> None:
    given = [t.requires_grad_() for t in tensors(shapes, torch.float64)]
    function = module.broadcast_test
    assert torch.autograd.gradcheck(function, given, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(function, given, check_fwd_over_rev=True)
    for kernel in ("", "_backward"):
        operator = getattr(module.KERNELS.operators, f"broadcast_test{kernel}").default
        plain = [t.detach() for t in given]
        grad = [incoming(shapes, torch.float64)] if kernel else []
        torch.library.opcheck(operator, (*grad, *plain))


@pytest.mark.together
@pytest.mark.parametrize("dims", [(0, None, None), (None, 0, None), (0, 0, 0), (1, None, 0)])
@pytest.mark.parametrize("size", [6, 1, 0])
def test_vmap_gives_each_its_own_gradients(
    module: ModuleType, dims: tuple[int | None, ...], size: int
) -> None:
    shapes = [(5, 3, 4), (3, 1), (4,)]
    batched = [s if d is None else (*s[:d], size, *s[d:]) for s, d in zip(shapes, dims, strict=True)]
    given = tensors(tuple(batched), torch.float64)

    def gradients(function: Callable[..., Tensor]) -> Any:
        of_sum = torch.func.grad(lambda *t: function(*t).sin().sum(), argnums=(0, 1, 2))
        return torch.func.vmap(of_sum, in_dims=dims)(*given)

    expected = gradients(lambda x, b, r: silu(x + b) * r)
    for found, right in zip(gradients(module.broadcast_test), expected, strict=True):
        torch.testing.assert_close(found, right)


@pytest.mark.few
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", SUMMED)
def test_cuda_sums_the_gradients(emulation: Emulated, name: str, dtype: torch.dtype) -> None:
    given = tensors(SUMMED[name], dtype)
    grad = incoming(SUMMED[name], dtype)
    found = run_sums(emulation, grad, *given)
    near(found, given, grad)
    for again, first in zip(run_sums(emulation, grad, *given), found, strict=True):
        assert_same(again, first)


@pytest.mark.few(2)
@pytest.mark.parametrize("how", ARRANGED)
def test_cuda_sums_the_gradients_of_any_layout(emulation: Emulated, how: str) -> None:
    for name in ("channel", "row", "column and row", "middle"):
        for dtype in (torch.float32, torch.bfloat16):
            x, b, r = tensors(SUMMED[name], dtype)
            grad = incoming(SUMMED[name], dtype)
            given = [arranged(x, how), arranged(b, how), r]
            near(run_sums(emulation, arranged(grad, how), *given), given, arranged(grad, how))


def test_cuda_sums_nothing_to_zero(emulation: Emulated) -> None:
    given = tensors(((0, 12), (12,), ()), torch.float32)
    _, b, r = run_sums(emulation, torch.zeros(0, 12), *given)
    assert torch.equal(b, torch.zeros(12))
    assert torch.equal(r, torch.zeros(()))


WRITTEN_OVER = (  # in two sweeps: which gradients over which tensor, the gradient of the result being 0
    *(("both ways", over) for over in ({2: 3}, {2: 0}, {1: 2}, {0: 1}, {0: 1, 1: 2, 2: 3})),
    *(("column and row", over) for over in ({0: 1}, {0: 0}, {1: 2}, {2: 3}, {0: 0, 1: 2, 2: 3})),
)


@pytest.mark.few(4)
@pytest.mark.parametrize(("name", "over"), WRITTEN_OVER)
def test_cuda_writes_gradients_over_what_they_are_computed_from(
    emulation: Emulated, name: str, over: dict[int, int]
) -> None:
    """A later sweep reads what an earlier one must not have written."""
    given = tensors(SUMMED[name], torch.float32)
    grad = incoming(SUMMED[name], torch.float32)
    expected = run_sums(emulation, grad, *given)
    for found, right in zip(run_sums(emulation, grad, *given, over=over), expected, strict=True):
        assert_same(found, right)
