"""Classes that are torch.nn's own, each with another forward, which runs a kernel where there is one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.models.patch.library import module

Run = Callable[..., "Tensor | None"]  # of a layer and its tensors: the result, or None without a kernel


def functions(modules: Iterable[str]) -> dict[str, Callable[..., Tensor]]:
    """Return the functions of some modules of the library.

    A module imports them at its top, since Dynamo does not trace an import by name.
    """
    return {name: getattr(module(path), name) for path in modules for name in [path.rpartition(".")[2]]}


def no_kernel(*_: Any) -> None:
    """Find none."""


def kind(base: Any, run: Run, holder: str, under_autocast: Run = no_kernel) -> type[nn.Module]:
    """Return a class of torch.nn's with a forward that runs a kernel, or else PyTorch's own.

    Args:
        base: the class.
        run: gets plain tensors alone.
        holder: the module that has the class.
        under_autocast: runs in its place where autocast is enabled for the device.
    """

    def forward(own: Any, *tensors: Tensor) -> Tensor:
        found = None
        if _are_plain(tensors):
            is_autocast = torch.is_autocast_enabled(tensors[0].device.type)
            found = (under_autocast if is_autocast else run)(own, *tensors)
        result: Tensor = base.forward(own, *tensors) if found is None else found
        return result

    words = {"forward": _named(base, forward), "__module__": holder, "__doc__": base.__doc__}
    return type(base.__name__, (base,), words)


def _named(base: Any, run: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a forward with the arguments that torch.nn's has, by whose number torch.fx goes."""

    def of_one(self: Any, input: Tensor) -> Tensor:
        return run(self, input)

    def of_two(self: Any, input: Tensor, target: Tensor) -> Tensor:
        return run(self, input, target)

    def of_pairs(self: Any, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return run(self, input1, input2, target)

    def of_triplets(self: Any, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return run(self, anchor, positive, negative)

    every = (of_one, of_two, of_pairs, of_triplets)
    kinds = {tuple(inspect.signature(each).parameters): each for each in every}
    forward = kinds[tuple(inspect.signature(base.forward).parameters)]
    # A code of its own: Dynamo counts recompilations of a code, and would add those of all classes.
    forward.__code__ = forward.__code__.replace(co_name=f"forward_of_{base.__name__}")
    forward.__name__, forward.__qualname__ = "forward", f"{base.__name__}.forward"
    return forward


def _are_plain(tensors: tuple[Any, ...]) -> bool:
    """Return True if all are tensors of one device that has kernels, the first one of floating point."""
    if not all(isinstance(t, Tensor) and type(t) in (Tensor, nn.Parameter) for t in tensors):
        return False
    first, device = tensors[0], tensors[0].device
    if device.type not in ("cpu", "cuda") or any(t.device != device or t.is_sparse for t in tensors):
        return False
    return bool(first.is_floating_point())
