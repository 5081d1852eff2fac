"""Sweeps: kernels whose threads walk along the dimension in which an operand stands still, in emulation."""

import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from emulated import Emulated, emulated, fill_table, run, run_sums
from emulated import defined as defined
from kernels import assert_same, compiled
from torch import Tensor
from torch.nn.functional import gelu

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

ONE_SIZE, OF_CHANNELS = "{x: {}, b: {}}", "{x: {shape: [2, 8]}, b: {shape: [8]}}"  # by curves in float32
FORMULAS: dict[str, tuple[str, str, Any]] = {  # in 16 bits the rounding of some results is verified
    "swish": (ONE_SIZE, "x * sigmoid(b * x)", lambda x, b: x * torch.sigmoid(b * x)),
    "bias_gelu": (ONE_SIZE, "gelu(x + b)", lambda x, b: gelu(x + b)),
    "curve_gelu": (OF_CHANNELS, "gelu(x + b)", lambda x, b: gelu(x + b)),
}
DTYPES = (torch.float32, torch.bfloat16)
Shape = tuple[int, ...]
FORWARD: dict[str, tuple[Shape, Shape]] = {  # of x and of b
    "rows": ((2, 3, 1024), (3, 1)),
    "rows that begin within a vector": ((2, 3, 1021), (3, 1)),
    "one row": ((1, 2, 2051), (2, 1)),
    "rows of a value": ((3, 999), ()),
    "columns": ((300, 16), (16,)),
    "columns of several blocks": ((11, 1040), (1040,)),
    "columns that no power of two divides": ((70, 72), (72,)),
    "columns inside": ((2, 3, 37, 16), (3, 1, 16)),
    "columns of a value for each row": ((2, 40, 16), (40, 1)),
}
SUMMED: dict[str, tuple[Shape, Shape]] = {  # few blocks, each of whose threads is one of the CPU
    "rows": ((2, 2, 1024), (2, 1)),
    "rows that begin within a vector": ((1, 3, 517), (3, 1)),
    "parts of a row": ((1, 1, 17001), (1, 1)),
    "columns": ((130, 16), (16,)),
    "columns that end within a vector": ((70, 13), (13,)),
    "columns of several blocks": ((5, 1040), (1040,)),
    "columns inside": ((2, 2, 37, 16), (2, 1, 16)),
    "columns of six dimensions": ((2, 3, 2, 3, 2, 8), (3, 1, 3, 1, 8)),
    "one row": ((1, 24), (24,)),
}


@pytest.fixture(
    scope="module",
    params=["swish", *(pytest.param(name, marks=pytest.mark.full) for name in ("bias_gelu", "curve_gelu"))],
)
def emulation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Emulated, Any]:
    inputs, formula, eager = FORMULAS[request.param]
    folder, name = tmp_path_factory.mktemp("sweeps"), f"sweep_{request.param}"
    module: ModuleType = compiled(folder, name, f"inputs: {inputs}\nformula: {formula}\n")
    found = emulated(module, name, tmp_path_factory.mktemp("emulated"))
    for kernel in (found.forward, found.backward):
        fill_table(kernel, torch.float32, 0)
    return found, eager


def tensors(shapes: tuple[Shape, ...], dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [(torch.randn(shape, generator=generator) * 2).to(dtype) for shape in shapes]


def spread(x: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The operand in the shape of the other tensor, as a view."""
    return x, b.view((1,) * (x.dim() - b.dim()) + b.shape).expand(x.shape)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORWARD)
def test_results_are_those_of_dense_tensors(
    emulation: tuple[Emulated, Any], name: str, dtype: torch.dtype
) -> None:
    kernel = emulation[0].forward
    x, b = spread(*tensors(FORWARD[name], dtype))
    expected = run(kernel, x.contiguous(), b.contiguous())[0]
    for chip in (70, 71, 72):
        kernel.state.chip = chip
        for shift, over in ((0, None), (1, None), (0, {0: 0})):
            assert_same(run(kernel, x, b, dense=False, shift=shift, over=over)[0], expected, x, b)
    kernel.state.chip = 70


def summed(eager: Any, x: Tensor, b: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of b in float64, and the sum of the sizes of what it adds up."""
    wide = [x.double(), b.double().expand(x.shape).contiguous().requires_grad_()]
    [each] = torch.autograd.grad(eager(*wide), wide[1:], grad.double())
    size = grad.double().abs() * (1 + x.double().abs()) ** 2
    return each.sum_to_size(b.shape), size.sum_to_size(b.shape)


@pytest.mark.few
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SUMMED)
def test_gradients_are_summed(emulation: tuple[Emulated, Any], name: str, dtype: torch.dtype) -> None:
    """That of x has the bits that the kernel of dense tensors gives."""
    of, eager = emulation
    x, b = tensors(SUMMED[name], dtype)
    grad = tensors((x.shape,), dtype)[0]
    found = run_sums(of, grad, x, b)
    dense = (grad, x, spread(x, b)[1].contiguous())
    assert_same(found[0], run(of.backward, *dense)[0], *dense)
    assert found[1].shape == b.shape
    exact, size = summed(eager, x, b, grad)
    error, unit = (found[1].double() - exact).abs(), torch.finfo(torch.float32).eps
    assert bool((error <= torch.finfo(dtype).eps / 2 * exact.abs() + 4 * unit * size).all())
    for again, first in zip(run_sums(of, grad, x, b), found, strict=True):
        assert_same(again, first)


def test_sums_beside_results_that_are_written_over(emulation: tuple[Emulated, Any]) -> None:
    of, x_b = emulation[0], tensors(SUMMED["columns"], torch.bfloat16)
    grad = tensors((x_b[0].shape,), torch.bfloat16)[0]
    expected = run_sums(of, grad, *x_b)
    for over in ({0: 0}, {0: 1}):
        for found, right in zip(run_sums(of, grad, *x_b, over=over), expected, strict=True):
            assert_same(found, right)


@pytest.mark.full
@pytest.mark.parametrize(("dtype", "last"), [(torch.float16, 2.0**-24), (torch.bfloat16, 2.0**-30)])
def test_a_result_of_double_is_rounded_once(tmp_path: Path, dtype: torch.dtype, last: float) -> None:
    """Of a sum that a float ends at a tie, the last term decides which neighbour it is."""
    body = "inputs: {x: {}, a: {}, b: {}}\nformula: (minimum(x + a, 0.5) + b) * 2\n"
    module = compiled(tmp_path, "in_double", body)
    assert "ByWidth<Widened<PlainDouble>," in module.CUDA_SOURCE
    kernel = emulated(module, "in_double", tmp_path).forward
    eps = torch.finfo(dtype).eps
    x, a, b = (torch.full((2, 1024), value, dtype=dtype) for value in (-1.0, -eps / 2, -last))
    expected = torch.full_like(x, -2.0 - 2 * eps)
    for other in (b[:, :1], b[:1]):
        assert_same(run(kernel, x, a, other.expand(x.shape), dense=False)[0], expected, x, a, b)
    assert_same(run(kernel, x, a, b)[0].view(x.shape), expected, x, a, b)
