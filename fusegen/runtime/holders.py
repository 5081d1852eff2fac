"""Holders of the output of a layer before the kernel behind it runs: hooks, modes, references."""

import functools
import sys
import weakref
from typing import Any, Tuple

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.utils._device import DeviceContext

from . import flavour
from .flavour import is_compiling


def is_watched(layer: nn.Module) -> bool:
    """True if a layer has hooks, or runs something else than the forward of its class as it was defined.

    Compilers replace the call of every layer while they trace.
    """
    own = layer.__dict__
    hooked = own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]
    hooked = hooked or own["_backward_pre_hooks"] or hooks._has_any_global_hook()
    if hooked or "forward" in own or own.get("_compiled_call_impl") is not None:
        return True
    return not is_compiling() and is_patched(layer.__class__)


def is_patched(kind: "Any") -> bool:
    """Return True if a method that a call runs was replaced in a class or in one of its bases."""
    return not are_own(kind, kind.__call__, kind.forward)


@functools.lru_cache(256)
def are_own(kind: "Any", *methods: "Any") -> bool:
    """Return True if methods are defined in the modules of a class and its bases, as no wrapper is."""
    homes = [vars(sys.modules[base.__module__]) for base in kind.__mro__ if base.__module__ in sys.modules]
    return all(any(getattr(method, "__globals__", None) is home for home in homes) for method in methods)


def is_under_mode() -> bool:
    """Return True if a mode of Python sees each operation: one of dispatch or of torch functions.

    That of ``torch.device`` and of the default device keeps no tensor.
    """
    if torch._C._len_torch_dispatch_stack() > 0:
        return True
    count = torch._C._len_torch_function_stack()
    if not count:
        return False
    modes = map(torch._C._get_function_stack_at, range(count))
    return any(mode.__class__ is not DeviceContext for mode in modes)


def references(layer: nn.Module, x: Any, *others: Any) -> int:
    """Return the references to an object that a caller's variable alone holds, as Python counts them here.

    How many a call itself adds depends on Python's version, and on whether dynamo has a hook in its calls.
    """
    return sys.getrefcount(x)


def has_one_owner(x: torch.Tensor) -> bool:
    """True if one object of Python alone has a strided tensor and its memory; no weak reference, either.

    A layer may return a view, as Linear does of a batch of matrices; then the view alone has the whole.
    """
    owners = flavour.owners(x)
    if weakref.getweakrefcount(x) or not owners:
        return False
    if x._base is None:
        return owners == owners_of_new()
    return (owners[0], *owners_of_base(x)) == owners_of_view()


def owners_of_base(view: torch.Tensor) -> "Tuple[int, ...]":
    """Return the owners of what a tensor is a view of."""
    base: Any = view._base
    return sys.getrefcount(base), weakref.getweakrefcount(base), *flavour.owners(base)


@functools.lru_cache(None)
def owners_of_new() -> "Tuple[int, ...]":
    """Return the owners of a tensor that was just made; how many PyTorch counts depends on its version."""
    return flavour.owners(torch.empty(1, device="cpu"))


@functools.lru_cache(None)
def owners_of_view() -> "Tuple[int, ...]":
    """Return those of a view that was just made, and those of what it is a view of."""
    with torch.inference_mode(False), torch.no_grad():
        view = torch.empty(1, device="cpu").view(1)
    return flavour.owners(view)[0], *owners_of_base(view)
