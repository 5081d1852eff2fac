"""Random formulas of rows against PyTorch's operations in float64: on the CPU, and CUDA's kernels emulated.

Sums and values of a row are in double, so that a float32 result is off by little more than its rounding.
Formula k is the same in every run; FUSEGEN_ROWS says how many are tried.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from budget import FULL
from random_rows import RowFormula, row_formula
from rows_emulated import emulated
from test_rows import made
from torch import Tensor

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
COUNT = int(os.environ.get("FUSEGEN_ROWS", "0"))
NUMBERS = range(COUNT) if COUNT else (0, 13)  # which were no C++, and had a wrong gradient in 16 bits
WHOLE = [k for k in NUMBERS if len(set(row_formula(k).shapes.values())) == 1]
# the largest error, relative to the largest element: elements of 16 bits are computed in float
NEAR = {torch.float32: 3e-7, torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float64: 1e-13}


def drawn(row: RowFormula, dtype: torch.dtype) -> list[Tensor]:
    """Tensors of a formula, which ask for gradients."""
    draw = torch.Generator().manual_seed(len(row.formula))
    own = [2 * torch.randn(shape, generator=draw) for shape in row.shapes.values()]
    return [each.to(dtype).requires_grad_() for each in own]


def exact(kernels: Any, row: RowFormula, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The result in float64, a gradient of it in the tensors' dtype, and those of the tensors."""
    wide = [each.detach().double().requires_grad_() for each in tensors]
    result = kernels.where_they_are(*wide, *row.params.values())
    grad = torch.randn(result.shape, generator=torch.Generator().manual_seed(1)).to(tensors[0].dtype)
    made = torch.autograd.grad(result, wide, grad.double(), materialize_grads=True)
    return result.detach(), grad, list(made)


def assert_near(result: Tensor, exact: Tensor) -> None:
    """The largest error is a small part of the largest element."""
    assert result.shape == exact.shape
    size = exact.abs().max().item() + 1e-3
    assert (result.double() - exact).abs().max().item() <= NEAR[result.dtype] * size


@pytest.mark.few(1)
@pytest.mark.parametrize("number", NUMBERS)
def test_a_formula_of_rows_is_that_of_pytorch(number: int, tmp_path: Path) -> None:
    row = row_formula(number)
    kernels: Any = made(tmp_path, "any_rows", row.body).KERNELS
    for dtype in NEAR:
        given = drawn(row, dtype)
        right, grad, gradients = exact(kernels, row, given)
        result = kernels.run(*given, *row.params.values())
        assert_near(result.detach(), right)
        own = torch.autograd.grad(result, given, grad, materialize_grads=True)
        for each, other in zip(own, gradients, strict=True):
            assert_near(each, other)


@pytest.mark.full
@pytest.mark.parametrize("number", WHOLE)
def test_cuda_kernels_of_a_formula_of_rows(number: int, tmp_path: Path) -> None:
    row = row_formula(number)
    module = made(tmp_path, "any_rows", row.body)
    rows, params, whole = emulated(module), tuple(row.params.values()), row.shapes["x"]

    def last(t: Tensor) -> Tensor:
        """The rows of a tensor, or values of rows, as the last dimension."""
        if t.dim() < len(whole):
            return t[..., None]
        return t.movedim(1, -1) if row.over == "[1]" else t.flatten(-2) if row.over == "[-2, -1]" else t

    for dtype in NEAR if FULL else [torch.bfloat16, torch.float64]:  # results in float, and in double
        given = [last(each.detach()) for each in drawn(row, dtype)]
        right, grad, gradients = exact(module.KERNELS, row, drawn(row, dtype))
        result = rows.forward(given, params)
        assert_near(result.reshape(last(right).shape), last(right))
        own = rows.backward([last(grad), *given], params)
        for each, other in zip(own, gradients, strict=True):
            assert_near(each, last(other))
