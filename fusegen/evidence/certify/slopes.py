"""The value of a function and its derivatives, as autograd gives them."""

import torch
from torch import Tensor

from fusegen.evidence.certify.findings import Function

Points = tuple[Tensor, ...]


def differentiated(
    function: Function,  # of the tensors
    tensors: Points,  # its inputs
    incoming: Tensor | None = None,  # the gradient of the value; None for ones
) -> Points:
    """Return a function's value and gradients; inputs keep their strides."""
    leaves = tuple(t.detach().requires_grad_() for t in tensors)
    with torch.enable_grad():
        y = function(*leaves)
    if not y.requires_grad:
        return (y, *(torch.zeros_like(t) for t in leaves))
    incoming = torch.ones_like(y) if incoming is None else incoming
    slopes = torch.autograd.grad(y, leaves, incoming, allow_unused=True)
    return (y.detach(), *filled(slopes, leaves))


def filled(slopes: tuple[Tensor | None, ...], leaves: Points) -> Points:
    """Return gradients, zeros where autograd knows none."""
    return tuple(torch.zeros_like(t) if s is None else s for s, t in zip(slopes, leaves, strict=True))


def value_and_slopes(function: Function, inputs: Points) -> Points:
    """Return a function's value and its derivative by each input, at an incoming gradient of 1.

    Raises:
        ValueError: the function changes its input, or returns another shape, dtype or device.
    """

    def checked(*leaves: Tensor) -> Tensor:
        versions, first = [t._version for t in leaves], leaves[0]
        y = function(*leaves)
        if not isinstance(y, Tensor):
            raise ValueError(f"it returns {type(y).__name__}, not a tensor")
        if (y.shape, y.dtype, y.device) != (first.shape, first.dtype, first.device):
            has = f"{tuple(first.shape)} {first.dtype} on {first.device}"
            raise ValueError(f"it makes {tuple(y.shape)} {y.dtype} on {y.device} of {has}")
        if [t._version for t in leaves] != versions:
            raise ValueError("it changes its input")
        return y

    return differentiated(checked, inputs)
