"""The integers that pick an element of each row, as kernels of rows take them."""

from typing import Any, Tuple

import torch

from .arguments import calling
from .calls import is_symbolic, traced, transformed
from .checks import check
from .flavour import is_fake

IGNORED = -100  # picks no element, as PyTorch's ignore_index
BEYOND = -2  # an integer that kernels refuse


def indexed(of: "Tuple[str, str, int, int]", given: Any, x: Any, ignored: int = IGNORED) -> Any:
    """Return integers as kernels take them: a number for each row of x, which is -100 of no element.

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
    other = f"{name} is of the rows of a tensor, not of {type(x).__name__}"
    check(isinstance(x, torch.Tensor), module, other, TypeError)
    check(given.dtype == torch.int64, module, f"{name} must be a tensor of int64, not of {given.dtype}")
    first = first + x.dim() if first < 0 else first
    last = first + count if count else x.dim()
    check(0 <= first < last <= x.dim(), module, f"a tensor of {x.dim()} dimensions has no such rows")
    rows, row = x.shape[:first] + x.shape[last:], x.shape[first:last]
    shapes = f"{name} has the shape {tuple(given.shape)}, and the rows have {tuple(rows)}"
    check(given.shape == rows, module, shapes)
    if given.device.type == "cpu" and not traced() and not transformed() and not is_fake(given):
        _check_range(module, name, given, row.numel(), ignored)
    whole = given if ignored == IGNORED else _mapped(given, ignored)
    return whole.reshape(*x.shape[:first], *(1 for _ in row), *x.shape[last:])


def _mapped(given: Any, ignored: int) -> Any:
    """Return integers of which -100 picks no element, in place of another one, and is refused itself."""
    return given.masked_fill(given == IGNORED, BEYOND).masked_fill(given == ignored, IGNORED)


def _check_range(module: str, name: str, given: Any, count: int, ignored: int) -> None:
    """Refuse integers of which one picks none of so many elements."""
    wrong = given[((given < 0) | (given >= count)) & (given != ignored)]
    if wrong.numel():
        check(False, module, f"{name} {wrong[0]} is out of range for {count} elements", IndexError)
