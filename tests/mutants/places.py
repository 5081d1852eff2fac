"""The calls, and the elements of a call, at which a fault is planted."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from mutants.faults import Tensors, Where


def between(low: float, high: float) -> Where:
    def where(tensors: Tensors, _: Mapping[str, Any]) -> Tensor:
        x = tensors[0].double()
        return (x >= low) & (x <= high)

    return where


def scattered_between(low: float, high: float, shift: float) -> Where:
    near = between(low, high)
    return lambda tensors, keywords: near(tensors, keywords) & scattered(tensors[0], shift)


def scattered(x: Tensor, shift: float) -> Tensor:
    return (x.double() * shift).frac().abs() < 0.01


def tail(x: Tensor, rest: int) -> Tensor | bool:
    """Return a mask of the elements after the last whole vector, where there are so many."""
    if x.dim() != 1 or x.numel() % 8 != rest:
        return False
    return torch.arange(x.numel(), device=x.device) >= x.numel() - rest


def last(x: Tensor) -> Tensor | bool:
    """Return a mask of the last seven elements of a large tensor, whose length is odd."""
    if x.dim() != 1 or x.numel() < 2**14 or x.numel() % 2 == 0:
        return False
    return torch.arange(x.numel(), device=x.device) >= x.numel() - 7


def of_first(condition: Callable[[Tensor], Any]) -> Where:
    return lambda tensors, _: condition(tensors[0])


def of_both(condition: Callable[[Tensor, Tensor], Any]) -> Where:
    return lambda tensors, _: condition(*tensors)


def large(least: int, tensors: Tensors, _: Mapping[str, Any]) -> bool:
    return tensors[0].numel() >= least


def called(keyword: str, _: Tensors, keywords: Mapping[str, Any]) -> bool:
    return keyword in keywords


def has(name: str, value: float, params: Mapping[str, float]) -> bool:
    return params[name] == value


def power(x: Tensor) -> Tensor:
    return torch.frexp(x.double())[0].abs() == 0.5


def second_only(tensors: Tensors, _: Mapping[str, Any]) -> bool:
    """Say whether only the second input needs a gradient."""
    return [t.requires_grad for t in tensors] == [False, True]


def odd(name: str, params: Mapping[str, float]) -> bool:
    """Say whether a parameter is no multiple of 1/2: drawn, or one of the small values."""
    return params[name] % 0.5 != 0
