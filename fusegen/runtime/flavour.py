"""The binding's part of the runtime: here PyTorch's stable ABI, from PyTorch 2.10 on."""

import contextlib
import pathlib
import sys
from typing import Any, Callable, Dict, List, Set, Tuple

import torch
from torch._C import _are_functorch_transforms_active as are_transforms_active
from torch._C._functorch import get_interpreter_stack
from torch._subclasses.fake_tensor import is_fake
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling, is_dynamo_compiling
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .flags import CPU_FLAGS

__all__ = [
    "CPU_FLAGS",
    "MINIMUM",
    "PRODUCTS",
    "SPACE",
    "SYSTEM",
    "are_transforms_active",
    "binding_header",
    "by_dtype",
    "capability",
    "define",
    "extension",
    "implement",
    "increment_version",
    "inline_options",
    "is_compiling",
    "is_dynamo_compiling",
    "is_fake",
    "is_traceable_wrapper_subclass",
    "joined",
    "kept_as",
    "loaded",
    "owners",
    "register_fake",
    "register_vmap",
    "registration",
    "transforms",
]

SYSTEM = {  # headers in place of larger ones, in builds for the CPU by the C++ compiler alone
    "immintrin.h": "system/immintrin.h",
    "torch/csrc/stable/c/shim.h": "system/shim.h",
    "torch/headeronly/util/Half.h": "system/half.h",
    "torch/headeronly/util/BFloat16.h": "system/half.h",
}
PRODUCTS = True  # whether the runtime has kernels of its own: of linear layers, of masks and of copies
MINIMUM = (2, 10)  # the oldest PyTorch
SPACE = "fusegen::names().space"  # the namespace of the operators, in C++
register_vmap = torch.library.register_vmap


def define(library: Any, schema: str, *tags: str) -> None:
    """Define an operator that works under torch.compile, with further tags by their names."""
    library.define(schema, tags=[getattr(torch.Tag, tag) for tag in ("pt2_compliant_tag", *tags)])


def register_fake(operator: Any, fake: Callable[..., Any], library: Any) -> None:
    """Tell PyTorch what an operator returns, without the elements."""
    torch.library.register_fake(operator, fake, lib=library)


def transforms() -> "Set[Any]":
    """Return the kinds of torch.func's transforms that are at work."""
    return {level.key() for level in get_interpreter_stack() or ()}


def owners(x: Any) -> "Tuple[int, ...]":
    """Return the owners of a strided tensor and of its memory, as C++ and Python count them."""
    memory = x.untyped_storage()
    return x._use_count(), torch._C._storage_Use_Count(memory._cdata), sys.getrefcount(memory)


def capability() -> str:
    """Return the CPU's vector instructions, as PyTorch names them."""
    return torch.backends.cpu.get_cpu_capability()


def binding_header(bitmask: bool) -> "List[str]":
    """Return the lines of C++ that include what binds kernels to PyTorch."""
    bound = "stable_abi_bitmask.h" if bitmask else "stable_abi.h"
    headers = (bound, "stable_abi_names.h", "stable_abi_by_dtype.h")
    return [f'#include "{header}"' for header in headers]


def registration(name: str, kernel: str, counts: str) -> str:
    """Return the line of C++ that registers a kernel, of some numbers of inputs, outputs and scalars."""
    return f'FUSEGEN_REGISTER({SPACE}, "KEY", {name}_{kernel}, {counts})'


def by_dtype(name: str, kernel: str, counts: str) -> "List[str]":
    """Return the lines of C++ by which a binding finds the functions of a kernel in other libraries."""
    return ["#ifdef FUSEGEN_BY_DTYPE", f"FUSEGEN_FIND({name}_{kernel}, {counts})", "#endif"]


def joined(kernel: str, signature: Any) -> str:
    """Return the C++ that registers a layer that is one kernel with the forward one, which is for CUDA."""
    counts = f"{len(signature.tensors)}, {signature.params}"
    line = f'FUSEGEN_REGISTER_{kernel.upper()}({SPACE}, "KEY", {signature.name}, {counts})'
    return f'#ifdef WITH_{kernel.upper()}\n#include "stable_abi_{kernel}.h"\n{line}\n#endif\n'


def inline_options(kernel: str) -> "Dict[str, Any]":
    """Return the options of `load_inline`, besides sources and flags."""
    return {"is_python_module": False, "no_implicit_headers": True}


def extension(library: pathlib.Path) -> str:
    """Return the name of a library for `load_inline`."""
    return library.stem


def kept_as(library: pathlib.Path, made: pathlib.Path) -> pathlib.Path:
    """Return the path under which a library that was made is kept."""
    return library


def loaded(library: pathlib.Path) -> bool:
    """Loads a library, which registers its kernels; tells whether it can be loaded."""
    with contextlib.suppress(OSError):
        torch.ops.load_library(library)
        return True
    return False


def implement(operators: Any, name: str, built: Any, kernel: str, key: str) -> None:
    """Register the kernels of a built library, which here has done so itself."""
