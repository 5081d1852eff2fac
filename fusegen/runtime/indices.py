"""The integers that pick an element of each row, and what is made of the values of all rows."""

from typing import Any, Callable, Tuple

import torch

from .arguments import calling
from .calls import is_symbolic, traced, transformed
from .checks import check

IGNORED = -100  # picks no element, as PyTorch's ignore_index
NONE, BEYOND = -1, -2  # what kernels take for none, and an integer that they refuse


def check_reduction(module: str, reduction: Any) -> None:
    """Refuse a word that is no reduction, as PyTorch's losses do."""
    known = reduction in ("none", "mean", "sum", "batchmean")
    check(known, module, f"{reduction} is not a valid value for reduction", ValueError)


def indexed(of: "Tuple[str, str, int, int]", given: Any, x: Any, ignored: int = IGNORED) -> Any:
    """Return integers as kernels take them: in float64, which has all of them, a number for each row of x.

    One that picks no element is -1.

    Args:
        of: the names of the module and of the index, the first dimension of a row, and how many it has; 0
            for all from there on.
        given: the integers.
        x: the tensor with the rows.
        ignored: the integer that picks none.
    """
    if is_symbolic(given, x):
        return calling(indexed, of, given, x, ignored)
    module, name, first, count = of
    check(isinstance(given, torch.Tensor), module, f"{name} must be a tensor of integers", TypeError)
    check(given.dtype == torch.int64, module, f"{name} must be a tensor of int64, not of {given.dtype}")
    first = first + x.dim() if first < 0 else first
    last = first + count if count else x.dim()
    check(0 <= first < last <= x.dim(), module, f"a tensor of {x.dim()} dimensions has no such rows")
    rows, row = x.shape[:first] + x.shape[last:], x.shape[first:last]
    shapes = f"{name} has the shape {tuple(given.shape)}, and the rows have {tuple(rows)}"
    check(given.shape == rows, module, shapes)
    none, others = given == ignored, given
    if given.device.type == "cpu" and not traced() and not transformed():
        _check_range(module, name, given.masked_fill(none, 0), row.numel())
    elif ignored != NONE:  # CUDA asserts it on the device, where NONE is no error
        others = given.masked_fill(given == NONE, BEYOND)
    whole = others.masked_fill(none, NONE).to(torch.float64)
    return whole.reshape(*x.shape[:first], *(1 for _ in row), *x.shape[last:])


def _check_range(module: str, name: str, given: Any, count: int) -> None:
    """Refuse integers of which one picks none of so many elements."""
    if given.numel() == 0:
        return
    least, largest = given.aminmax()
    if least < 0 or largest >= count:
        beyond = given[(given < 0) | (given >= count)][0]
        check(False, module, f"{name} {beyond} is out of range for {count} elements", IndexError)


def of_all_rows(kernels: Any, function: "Callable[..., Any]", *given: Any) -> Any:
    """Return a reduction, the last argument, of the values that a function gives of rows.

    They are added in float64, in an order that they decide.
    """
    *arguments, reduction = given
    check_reduction(kernels.name, reduction)
    values = function(*arguments)
    if reduction == "none":
        return values
    total = values.sum(dtype=torch.float64)
    if reduction == "batchmean":
        total = total / values.shape[:1].numel()
    if reduction == "mean":
        count = values.numel()
        if kernels.signature.indices:  # of the rows that are not ignored
            picked = arguments[kernels.inputs - 1].reshape(-1)
            count = (
                (picked >= 0).sum() if not kernels.divisor else _picked(arguments[kernels.divisor], picked)
            )
        total = total / count
    return total.to(values.dtype)


def _picked(weights: Any, index: Any) -> Any:
    """Return the sum of the weights that an index picks, in float64."""
    found = weights.detach().reshape(-1)[index.clamp(min=0).long()].to(torch.float64)
    return torch.where(index >= 0, found, 0.0).sum()
