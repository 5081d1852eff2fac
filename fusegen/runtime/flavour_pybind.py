"""The binding's part of the runtime: here pybind11, from PyTorch 2.0 on."""

import contextlib
import importlib.util
import pathlib
import sys
from typing import Any, Callable, Dict, List, Set, Tuple

import torch
from torch._subclasses import fake_tensor

from . import flags

SYSTEM: "Dict[str, str]" = {}  # PyTorch builds, with all headers
PRODUCTS = False  # whether the runtime has kernels of its own: of linear layers, of masks and of copies
MINIMUM = (2, 0)  # the oldest PyTorch
SPACE = ""  # which only the stable ABI names in C++
CPU_FLAGS = ["-fopenmp", *flags.CPU_FLAGS]
are_transforms_active = torch._C._are_functorch_transforms_active

# What came after PyTorch 2.0, in 2.3, 2.1, 2.1, 2.1, 2.1 and 2.5; vmap took a bare operator row after row.
is_dynamo_compiling = getattr(
    getattr(torch, "compiler", None), "is_dynamo_compiling", torch._utils.is_compiling
)
is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", is_dynamo_compiling)
increment_version = getattr(
    torch.autograd.graph,
    "increment_version",
    lambda tensor: torch._C._autograd._unsafe_set_version_counter(tensor, tensor._version + 1),
)
is_traceable_wrapper_subclass = getattr(
    torch.utils._python_dispatch,
    "is_traceable_wrapper_subclass",
    lambda tensor: hasattr(tensor, "__tensor_flatten__"),
)
is_fake = getattr(fake_tensor, "is_fake", lambda tensor: isinstance(tensor, fake_tensor.FakeTensor))
register_vmap = getattr(torch.library, "register_vmap", lambda operator, rule, lib: None)
active_transforms = getattr(torch._C._functorch, "get_interpreter_stack", lambda: ())


def define(library: Any, schema: str, *tags: str) -> None:
    """Define an operator; PyTorch 2.0 takes no tags."""
    library.define(schema)


def register_fake(operator: Any, fake: Callable[..., Any], library: Any) -> None:
    """Tell PyTorch what an operator returns, without the elements."""
    library.impl(operator._schema.name.partition("::")[2], fake, "Meta")


def transforms() -> "Set[Any]":
    """Return the kinds of torch.func's transforms that are at work."""
    return {level.key() for level in active_transforms() or ()}


def owners(x: Any) -> "Tuple[int, ...]":
    """Return the owners of a strided tensor and of its memory, as C++ and Python count them, or none."""
    of_memory = getattr(torch._C, "_storage_Use_Count", None)
    if of_memory is None or not hasattr(x, "_use_count"):
        return ()
    memory = x.untyped_storage()
    return x._use_count(), of_memory(memory._cdata), sys.getrefcount(memory)


def capability() -> str:
    """Return the CPU's vector instructions, as PyTorch names them."""
    return str(torch.__config__.show().partition("CPU capability usage: ")[2].partition("\n")[0])


def binding_header(bitmask: bool) -> "List[str]":
    """Return the lines of C++ that include what binds kernels to PyTorch; bitmasks need the stable ABI."""
    return ['#include "pybind.h"']


def registration(name: str, kernel: str, counts: str) -> str:
    """Return the line of C++ that exports a kernel, of some numbers of inputs, outputs and scalars."""
    return f"FUSEGEN_FUNCTIONS({name}_{kernel}, {kernel}, {counts})"


def by_dtype(name: str, kernel: str, counts: str) -> "List[str]":
    """Return nothing: a library has a kernel for all dtypes."""
    return []


def joined(kernel: str, signature: Any) -> str:
    """Return nothing: a layer that is one kernel with the forward one needs the stable ABI."""
    return ""


def inline_options(kernel: str) -> "Dict[str, Any]":
    """Return the options of `load_inline`, besides sources and flags."""
    return {"functions": [kernel, kernel + "_out"]}


def extension(library: pathlib.Path) -> str:
    """Return the name of the module in a library, which modules of equal kernels share."""
    return f"kernel_{library.stem.rpartition('_')[2]}"


def kept_as(library: pathlib.Path, made: pathlib.Path) -> pathlib.Path:
    """Return the path under which a library that was made is kept; PyTorch may have numbered it."""
    number = made.stem[len(extension(library)) :]
    return library.with_name(f"{library.stem}{number}{library.suffix}")


def loaded(library: pathlib.Path) -> Any:
    """Return a library's functions, or None where it cannot be loaded."""
    with contextlib.suppress(OSError, ImportError):
        name = f"{library.stem}.{extension(library)}"  # pybind11 keeps modules by their whole name
        found: Any = importlib.util.spec_from_file_location(name, library)
        built = importlib.util.module_from_spec(found)
        found.loader.exec_module(built)
        return built
    return None


def implement(operators: Any, name: str, built: Any, kernel: str, key: str) -> None:
    """Register the kernels of a built library."""
    for function in (kernel, kernel + "_out"):
        operators._library.impl(f"{name}_{function}", getattr(built, function), key)
