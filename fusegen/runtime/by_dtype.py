"""The libraries of a kernel for the CPU: its binding, and its functions for each dtype.

The binding registers the operator of a kernel for tensors of all dtypes. For a dtype that it does not know
it calls an operator of this file, which builds and loads the library, and gives the functions in it.
"""

import contextlib
import ctypes
import functools
import pathlib
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from .checks import reason
from .layouts import NUMBERS
from .together import outcome

BINDING = "binding"  # the library that is none of a dtype
KNOWN, TOLD = "_fusegen_functions", "_fusegen_told"  # attributes of a namespace of operators
DTYPES = {number: dtype for dtype, number in NUMBERS.items()}


FUNCTIONS = ("launch", "workspace", "reduce")


class Functions(ctypes.Structure):
    """The functions of a library by address, in the order of include/stable_abi_by_dtype.h."""

    _fields_ = [(name, ctypes.c_void_p) for name in FUNCTIONS]


def parts(dtypes: "Sequence[torch.dtype]", wanted: "Optional[torch.dtype]") -> "List[str]":
    """Return the libraries of a kernel that a call in a dtype needs, or all.

    Args:
        dtypes: that the kernel takes; the binding refuses others.
        wanted: that of the call.
    """
    chosen = [dtype for dtype in dtypes if wanted in (dtype, None)]
    return [BINDING, *map(name_of, chosen)]


def name_of(dtype: torch.dtype) -> str:
    """Return the name of a dtype, as float32."""
    return str(dtype).rpartition(".")[2]


def is_loaded(operators: Any, kernel: str, part: str) -> bool:
    """Return True if the functions of a dtype are loaded, or are in the library of the binding."""
    known = vars(operators).get(KNOWN, {})
    return kernel not in known or part in known[kernel]


def divide(kernels: Any, operators: Any, kernel: str, load: "Callable[[torch.dtype], None]") -> None:
    """Define the operator that gives the functions of a kernel, before its binding is loaded.

    Args:
        kernels: of the module.
        operators: their namespace.
        kernel: forward or backward.
        load: builds and loads the library of a dtype.
    """
    known: "Dict[str, Dict[str, Functions]]" = vars(operators).setdefault(KNOWN, {})
    if kernel not in known:
        known[kernel] = {}
        name, give = f"{kernels.name}_{kernel}_library", functools.partial(_give, kernels.name, operators)
        operators._library.define(f"{name}(int dtype) -> int")
        operators._library.impl(name, functools.partial(give, kernel, load), "CompositeExplicitAutograd")


def keep(operators: Any, kernel: str, part: str, library: pathlib.Path) -> None:
    """Note the functions of a library that is loaded."""
    loaded, made = ctypes.CDLL(str(library)), Functions()
    for name in FUNCTIONS:
        with contextlib.suppress(AttributeError):  # of a kernel without sums
            function = getattr(loaded, f"kernel_{kernel}_{name}")
            setattr(made, name, ctypes.cast(function, ctypes.c_void_p))
    vars(operators)[KNOWN][kernel][part] = made


def _give(module: str, operators: Any, kernel: str, load: "Callable[[Any], None]", number: int) -> int:
    """Return the address of the functions of a dtype; or of a sentence on what went wrong, negative."""
    dtype = DTYPES[number]
    failure = None if is_loaded(operators, kernel, name_of(dtype)) else outcome(load, dtype)
    if failure is None:
        return ctypes.addressof(vars(operators)[KNOWN][kernel][name_of(dtype)])
    text = ctypes.create_string_buffer(reason(failure, module).encode())
    vars(operators).setdefault(TOLD, []).append(text)  # which C++ reads later
    return -ctypes.addressof(text)
