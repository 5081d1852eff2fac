"""Refusals: one sentence each, which begins with the module's name."""

import numbers
from typing import Any, Sequence, Type

import torch


def check(holds: Any, module: str, otherwise: str, error: "Type[Exception]" = RuntimeError) -> None:
    """Raise an error of one sentence unless a condition holds."""
    if not holds:
        raise error(f"{module}: {otherwise}")


def reason(error: Exception, module: str) -> str:
    """Return the sentence of an error without the module's name, with which whoever tells it begins."""
    return str(error).replace(f"{module}: ", "", 1)


def check_given(module: str, names: "Sequence[str]", tensors: "Sequence[Any]") -> None:
    """Refuse a call without one of its tensors."""
    for name, tensor in zip(names, tensors):
        check(tensor is not None, module, f"the argument {name} is missing", TypeError)


def check_tensors(module: str, names: "Sequence[str]", tensors: "Sequence[Any]") -> None:
    """Refuse a call without one of its tensors, or with something else in its place."""
    check_given(module, names, tensors)
    for name, tensor in zip(names, tensors):
        other = f"{name} must be a tensor, not {type(tensor).__name__}"
        check(isinstance(tensor, torch.Tensor), module, other, TypeError)


def check_writable(module: str, out: torch.Tensor) -> None:
    """Refuse, as PyTorch does, a tensor whose change autograd could not be told of."""
    frozen = out.is_inference() and not torch.is_inference_mode_enabled()
    check(
        not frozen,
        module,
        "an inference tensor cannot be written over outside of inference mode; clone() it first",
    )


def scalar(module: str, name: str, value: Any) -> float:
    """Return a parameter as the float that the operator takes, from what PyTorch takes as a number, too."""
    number = isinstance(value, (int, float, torch.SymInt, torch.SymFloat, numbers.Real))
    if isinstance(value, torch.Tensor):
        check_number(module, name, value)
        number = True
    number = number or type(value).__name__ in ("bool", "bool_")  # numpy's, which is no number to Python
    check(number, module, f"{name} must be a number, not {type(value).__name__}", TypeError)
    return float(value)


def check_along(module: str, name: str, value: Any, x: Any, dim: int) -> None:
    """Refuse what has not a number for each place along a dimension of a tensor, nor one for all."""
    check(value is not None, module, f"the argument {name} is missing", TypeError)
    check(x is not None, module, "the first argument is missing", TypeError)
    one = value.dim() <= 1
    check(one, module, f"{name} must have one dimension, and has {value.dim()}")
    count, size = value.numel(), x.size(dim) if x.dim() > dim else 1
    if count != 1 and count != size:  # a sentence of symbolic numbers would fix them
        check(False, module, f"{name} has {count} numbers for {size} places along dimension {dim}")


def check_mask(module: str, name: str, value: Any) -> None:
    """Refuse what torch.where takes as no condition."""
    tensor = isinstance(value, torch.Tensor)
    check(tensor, module, f"{name} must be a tensor of bool, not {type(value).__name__}", TypeError)
    check(value.dtype == torch.bool, module, f"{name} must be a tensor of bool, not of {value.dtype}")


def check_number(module: str, name: str, value: torch.Tensor) -> None:
    """Refuse a tensor that is no number: it has a gradient, which would be lost, or it has dimensions."""
    graded = f"{name} must be a number: the kernels compute no gradient of it; give {name}.item()"
    check(not value.requires_grad, module, graded, TypeError)
    number = value.dim() == 0 and not value.is_complex()
    check(number, module, f"{name} must be a number, not {type(value).__name__}", TypeError)
