"""The value of a function and its derivatives, as autograd gives them."""

import torch
from torch import Tensor

from fusegen.evidence.certify.findings import Function


def value_and_slopes(function: Function, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return a function's value and its derivative by each input, at an incoming gradient of 1.

    Raises:
        ValueError: the function changes its input, or returns another shape, dtype or device.
    """
    leaves = tuple(t.detach().requires_grad_() for t in inputs)
    versions = [t._version for t in leaves]
    with torch.enable_grad():
        y = function(*leaves)
        if not isinstance(y, Tensor):
            raise ValueError(f"it returns {type(y).__name__}, not a tensor")
        first = inputs[0]
        if (y.shape, y.dtype, y.device) != (first.shape, first.dtype, first.device):
            has = f"{tuple(first.shape)} {first.dtype} on {first.device}"
            raise ValueError(f"it makes {tuple(y.shape)} {y.dtype} on {y.device} of {has}")
        if not y.requires_grad:
            return (y, *(torch.zeros_like(t) for t in inputs))
        slopes = torch.autograd.grad(y, leaves, torch.ones_like(y), allow_unused=True)
    if [t._version for t in leaves] != versions:
        raise ValueError("it changes its input")
    return (
        y.detach(),
        *(torch.zeros_like(t) if s is None else s for s, t in zip(slopes, leaves, strict=True)),
    )
