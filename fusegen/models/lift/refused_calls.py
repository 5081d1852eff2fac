"""Calls that no graph keeps, and what a forward draws or decides while it is captured."""

import contextlib
import inspect
import math
import random
import sys
import threading
from collections.abc import Callable, Iterator
from types import ClassMethodDescriptorType
from typing import Any

import torch
from torch import SymBool, SymFloat, SymInt, Tensor
from torch.amp import autocast
from torch.autograd import Function

from fusegen.models.lift.places import is_own
from fusegen.models.lift.untraced import CONDITION, COUNTS, Lost

REFUSED = (  # methods, and why a forward that calls one is not captured
    (torch, "manual_seed", "it seeds random numbers, which its graph does not keep"),
    (autocast, "__enter__", "it enters autocast, which its graph does not keep"),
    (
        Function.__mro__[1],  # which Function.apply calls; a bound one may be older than the replacement
        "apply",
        "it calls a torch.autograd.Function, whose backward its graph does not keep",
    ),
    (torch.inference_mode, "__enter__", "it enters inference mode, which its graph does not keep"),
    (torch, "is_grad_enabled", "it asks if gradients are recorded, which its graph does not keep"),
    (Tensor, "register_hook", "it registers a hook of a tensor, which its graph does not keep"),
)
# of some the calls that are refused, by the file of the caller and the arguments: PyTorch asks, too, and
# leaves inference mode by entering it
SOME: dict[str, Callable[[str, tuple[Any, ...]], bool]] = {
    "is_grad_enabled": lambda file, given: is_own(file),
    "register_hook": lambda file, given: is_own(file),
    "__enter__": lambda file, given: getattr(given[0], "mode", True),
}
ASKS = "it asks by {} what its graph does not keep"
ASKED: tuple[tuple[Any, tuple[str, ...]], ...] = (  # functions, by which code asks where and how it runs
    (torch, ("is_autocast_enabled", "is_autocast_cpu_enabled", "get_autocast_dtype")),
    (torch, ("get_default_dtype", "get_default_device", "is_inference_mode_enabled", "broadcast_shapes")),
    (torch, ("are_deterministic_algorithms_enabled", "get_num_threads", "get_float32_matmul_precision")),
    (torch.cuda, ("is_available", "device_count")),
    (torch.backends.mps, ("is_available",)),
)
DECIDING: tuple[tuple[Any, str, str], ...] = (  # by which code reads the value of a size, or where it runs
    *((owner, name, ASKS.format(f"{owner.__name__}.{name}")) for owner, names in ASKED for name in names),
    (SymBool, "__bool__", CONDITION),
    *((kind, name, COUNTS) for kind in (SymInt, SymFloat) for name in ("__bool__", "__int__", "__float__")),
    (SymInt, "__index__", COUNTS),
)
OF_SIZES = {name.removeprefix("_sym_"): getattr(torch, name) for name in dir(torch) if "_sym_" in name}


def random_states() -> dict[str, object]:
    """Return the states of the generators of random numbers that a forward would draw from."""
    numpy = sys.modules.get("numpy")
    states: dict[str, object] = {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "Python's module random": random.getstate(),
    }
    return states if numpy is None else {**states, "numpy": repr(numpy.random.get_state())}


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Refuse calls that no graph keeps while a forward is captured; math takes sizes."""
    with contextlib.ExitStack() as stack:
        for owner, name, why in REFUSED:
            stack.enter_context(replaced(owner, name, _refusing(owner, name, why)))
        for name, function in OF_SIZES.items():
            if hasattr(math, name):
                stack.enter_context(replaced(math, name, _of_sizes(getattr(math, name), function)))
        yield


@contextlib.contextmanager
def refusing_decisions() -> Iterator[None]:
    """Refuse to decide by sizes and settings in the user's code; PyTorch decides in each call."""
    with contextlib.ExitStack() as stack:
        for kind, name, why in DECIDING:
            if hasattr(kind, name):
                stack.enter_context(replaced(kind, name, _deciding(getattr(kind, name), why)))
        yield


def _refusing(owner: Any, name: str, why: str) -> Any:
    """Return a method that cannot be called in the thread that captures a forward."""
    usual: Any = inspect.getattr_static(owner, name)
    thread = threading.get_ident()
    is_of_class = isinstance(usual, ClassMethodDescriptorType)

    def refuse(*given: Any, **named: Any) -> Any:
        file = sys._getframe(1).f_code.co_filename
        if threading.get_ident() == thread and (name not in SOME or SOME[name](file, given)):
            raise Lost(why)
        if is_of_class:
            return usual.__get__(None, given[0])(*given[1:], **named)
        return usual(*given, **named)

    return classmethod(refuse) if is_of_class else refuse


def _deciding(method: Callable[..., Any], why: str) -> Callable[..., Any]:
    def decide(*given: Any, **named: Any) -> Any:
        if is_own(sys._getframe(1).f_code.co_filename):
            raise Lost(why)
        return method(*given, **named)

    return decide


def _of_sizes(usual: Callable[..., Any], of_sizes: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of math that keeps sizes as symbols."""

    def compute(*given: Any) -> Any:
        is_size = any(isinstance(each, SymInt | SymFloat) for each in given)
        return (of_sizes if is_size else usual)(*given)

    compute.__name__, compute.__module__ = usual.__name__, "math"
    return compute


@contextlib.contextmanager
def replaced(owner: Any, name: str, function: Any) -> Iterator[None]:
    """Has another function or property in the place of one."""
    before = {key: value for key, value in vars(owner).items() if key == name}
    setattr(owner, name, function)
    try:
        yield
    finally:
        delattr(owner, name)
        for value in before.values():
            setattr(owner, name, value)
