"""Operands of rows with one value for all elements of a row, of which CUDA's kernels get few rows."""

import sys
from typing import Any

import pytest
import torch
from kernels import generated
from torch import Tensor

SMALLEST = "kernelbench/conv3d_min_softmax", "SMALLEST_KERNELS"
SOFTMAX = "rows/scaled_masked_softmax", "KERNELS"
VOLUMES, SCORES = (2, 3, 8, 5, 6), (2, 3, 4, 16)
Sizes = tuple[int, ...]
CASES: dict[str, tuple[tuple[str, str], Sizes, Sizes]] = {  # the kernels, and the shapes of their tensors
    "a bias of channels, rows apart": (SMALLEST, VOLUMES, (3, 1, 1, 1)),
    "a number, rows apart": (SMALLEST, VOLUMES, (1,)),
    "a mask of heads": (SOFTMAX, SCORES, (3, 1, 1)),
    "a mask of elements": (SOFTMAX, SCORES, (4, 16)),
    "a mask of each row": (SOFTMAX, SCORES, (2, 3, 4, 1)),
    "a row": (SOFTMAX, (1, 16), (1, 1)),
}
REPEATED = {"a bias of channels, rows apart": 3 * 8, "a number, rows apart": 8, "a mask of heads": 3 * 16}


def called(kernels: Any, x: Tensor, operand: Tensor) -> Tensor:
    """A call with its scalars."""
    made: Tensor = kernels.run(x, operand, *[0.125] * kernels.signature.params)
    return made


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_of_rows_are_repeated(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, extensions: None
) -> None:
    """Without a gradient, as if on a GPU: the result has the same bits."""
    (module, attribute), shape, own = CASES[name]
    kernels: Any = getattr(generated(module), attribute)
    taken: Any = sys.modules[type(kernels).__module__.replace("runtime.rows", "runtime.row_operands")]
    torch.manual_seed(0)
    x, operand = torch.randn(shape).to(dtype), torch.randn(own).to(dtype)
    expected = called(kernels, x, operand)
    seen: list[Tensor] = []
    of_shape = taken._of_shape

    def noted(t: Tensor, *others: Any) -> Tensor:
        seen.append(of_shape(t, *others))
        return seen[-1]

    monkeypatch.setattr(taken, "_of_shape", noted)
    monkeypatch.setattr(taken, "is_on_gpu", lambda t: True)
    assert torch.equal(called(kernels, x, operand), expected)
    held = seen[0].untyped_storage().nbytes() // seen[0].element_size()
    assert held == REPEATED.get(name, operand.numel())
    if name in REPEATED:
        assert seen[0].stride(-1) == 1


def test_gradients_see_a_view(monkeypatch: pytest.MonkeyPatch, extensions: None) -> None:
    kernels: Any = generated("kernelbench/conv3d_min_softmax").SMALLEST_KERNELS
    taken: Any = sys.modules[type(kernels).__module__.replace("runtime.rows", "runtime.row_operands")]
    torch.manual_seed(0)
    x, bias = torch.randn(2, 3, 8, 5, 6), torch.randn(3, 1, 1, 1, requires_grad=True)
    [expected] = torch.autograd.grad(called(kernels, x, bias).sum(), bias)
    monkeypatch.setattr(taken, "is_on_gpu", lambda t: True)
    [found] = torch.autograd.grad(called(kernels, x, bias).sum(), bias)
    assert torch.equal(found, expected)
