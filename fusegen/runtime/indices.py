"""The integers that pick an element of each row, and what is made of the values of all rows."""

from typing import Any

import torch

from .arguments import calling
from .calls import is_symbolic, traced, transformed
from .checks import check

IGNORED = -100  # picks no element, as PyTorch's ignore_index


def indexed(module: str, name: str, given: Any, x: Any, over: int) -> Any:
    """Return integers as kernels take them: in float64, which has all of them, a number for each row of x.

    One that picks no element is -1.
    """
    if is_symbolic(given, x):
        return calling(indexed, module, name, given, x, over)
    check(isinstance(given, torch.Tensor), module, f"{name} must be a tensor of integers", TypeError)
    check(given.dtype == torch.int64, module, f"{name} must be a tensor of int64, not of {given.dtype}")
    rows, row = x.shape[:over], x.shape[over:]
    shapes = f"{name} has the shape {tuple(given.shape)}, and the rows have {tuple(rows)}"
    check(given.shape == rows, module, shapes)
    if given.device.type == "cpu" and not traced() and not transformed():  # CUDA asserts it on the device
        beyond = given[((given < 0) | (given >= row.numel())) & (given != IGNORED)]
        if beyond.numel():
            check(
                False, module, f"{name} {beyond[0]} is out of range for {row.numel()} elements", IndexError
            )
    whole = torch.where(given == IGNORED, -1, given).to(torch.float64)
    return whole.reshape(*rows, *(1 for _ in row))


def reduced(kernels: Any, values: Any, arguments: Any) -> Any:
    """Return the mean or the sum of the values of rows, added in float64 in an order that they decide."""
    total = values.sum(dtype=torch.float64)
    if kernels.reduction == "mean":
        count = values.numel()
        if kernels.signature.indices:  # of the rows that are not ignored
            count = (arguments[kernels.inputs - 1] >= 0).sum()
        total = total / count
    return total.to(values.dtype)
