"""Values of rows in float32 beside elements of 16 bits, as PyTorch's operations give them."""

from typing import Any, Callable, Optional

import torch

from .arguments import calling
from .calls import is_symbolic
from .shared import mapped


def dtype_beside(row_dtype: "Optional[torch.dtype]", dtype: "torch.dtype") -> "torch.dtype":
    """Return the dtype of values of rows beside elements of a dtype."""
    return row_dtype if row_dtype and dtype in (torch.float16, torch.bfloat16) else dtype


def widening(kernels: Any, function: "Callable[..., Any]") -> "Callable[..., Any]":
    """Return a function of some tensors, whose values of rows have the dtype that kernels give them.

    Tensors of 16 bits are converted where it is another one, and results of elements back.
    """
    if kernels.row_dtype is None:
        return function
    elements = [k for k in range(kernels.results) if k not in kernels.row_results]

    def call(*arguments: Any) -> Any:
        tensors, others = arguments[: kernels.inputs], arguments[kernels.inputs :]
        wide = (_widened(t, kernels.row_dtype) for t in tensors)
        made = function(*wide, *others)
        return mapped(lambda result: _alike(result, tensors[0]), made, kernels.results, elements)

    return call


def _widened(given: Any, row_dtype: "torch.dtype") -> Any:
    if is_symbolic(given):
        return calling(_widened, given, row_dtype)
    if not isinstance(given, torch.Tensor):
        return given
    return given.to(dtype_beside(row_dtype, given.dtype))


def _alike(result: Any, given: Any) -> Any:
    """Return a result in the dtype of a given tensor."""
    if is_symbolic(result, given):
        return calling(_alike, result, given)
    return result.to(given.dtype)
