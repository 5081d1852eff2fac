"""The C++ and CUDA sources of a module, and the texts that its kernels are built from."""

import functools
import pathlib
import re
from dataclasses import dataclass
from typing import Any, List, NamedTuple, Tuple

from . import flavour
from .headers import inlined

ALL = ("float32", "float16", "bfloat16", "float64")  # the dtypes that every kernel takes unless it says so


@dataclass(frozen=True)
class Sources:
    """The sources of a module, which include headers of this runtime."""

    # cuda, cpu: the kernels of a device
    cuda: str
    cpu: str
    bitmask: bool = False  # whether `cuda` has kernels that write or read a bitmask
    # what stands behind `cuda` in a library of its own, where a convolution of few input channels runs as
    # one kernel with the forward one; empty where none does
    convolution: str = ""
    # whether a linear layer runs as one kernel with the forward one, in such a library
    product: bool = False

    @property
    def joined(self) -> str:
        """The kernel of the library in which a layer and the forward kernel are one; empty without one."""
        return "convolved" if self.convolution else "multiplied" if self.product else ""


PRODUCT = '#include "cuda/product_behind.cuh"\nFUSEGEN_MULTIPLIED({}, Forward)\n'  # behind `cuda`
# The headers that launch kernels for nvcc, in place of which the program for NVRTC has those below nvrtc/.
LAUNCHES = ("pointwise_launch.cuh", "table_launch.cuh", "lazy_init.cuh")


class Texts(NamedTuple):
    """The sources of a module with their headers in their places; equal in every copy of the runtime."""

    name: str  # of the module
    binding: str  # the operators, on the CPU
    on_cuda: str  # the same on CUDA, where a gradient may have further ones
    cpu: str  # a kernel for the CPU
    cuda: str  # the text that nvcc compiles
    # the whole text of the library in which the layer in front is one with the forward kernel; empty where
    # there is none
    joined: str


def texts(kernels: Any) -> Texts:
    """Return the sources of an `Activation` with their headers."""
    sources = kernels.sources
    bound = binding(kernels)
    behind = sources.convolution or (PRODUCT.format(kernels.name) if sources.product else "")
    if behind:
        bound += flavour.joined(sources.joined, kernels.signature)
    whole = sources.cuda + behind if behind else ""
    of_devices = (of_device(bound, device) for device in ("cpu", "cuda"))
    written = (inlined(text, header) for text in (*of_devices, sources.cpu, sources.cuda, whole))
    return Texts(kernels.name, *written)


@functools.lru_cache(maxsize=64)
def program(cuda: str) -> str:
    """Return the text of a module that NVRTC compiles, with its headers: kernels, which Python launches."""
    instead = {f"cuda/{name}": f"nvrtc/{name}" for name in LAUNCHES}
    whole = f'#include "nvrtc/standard.h"\n{cuda}#include "nvrtc/kernels.cuh"\n'
    return inlined(whole, lambda name: header(instead.get(name, name)))


def of_device(text: str, device: str) -> str:
    """Return a binding, its headers not yet in their places, without the lines of the other device."""
    part = {"cuda": r"\1", "cpu": r"\2"}[device]
    return re.sub(
        r"^#ifdef ON_CUDA\n(.*?)(?:^#else\n(.*?))?^#endif\n", part, text, flags=re.DOTALL | re.MULTILINE
    )


def binding(kernels: Any) -> str:
    """Return the C++ that registers the kernels of an `Activation` with PyTorch."""
    signature, dtypes, bitmask = kernels.signature, kernels.dtypes, kernels.sources.bitmask
    names = _names(dtypes)
    several = ", ".join(f"fusegen::{name.upper()}" for name in names)
    lines = [
        f'#define FUSEGEN_SYMBOL "{signature.name}"',
        '#include "names.h"',
        f'#define FUSEGEN_EXPECTED "{expected(dtypes)}"',
        f"#define FUSEGEN_DTYPES {'AllDtypes' if set(names) == set(ALL) else f'Dtypes<{several}>'}",
        *_gradients(signature, kernels.masks),
        *kernels.includes(),
    ]
    for kernel, _, inputs, outputs in signature.kernels:
        counts = f"{inputs}, {outputs}, {signature.params}"
        lines += [f"#ifndef WITHOUT_{kernel.upper()}", kernels.registration(kernel, counts)]
        lines += flavour.by_dtype(signature.name, kernel, counts)
        if bitmask:
            own = f'{flavour.SPACE}, "KEY", {signature.name}, {signature.params}'
            lines.append(f"FUSEGEN_REGISTER_BITMASK_{kernel.upper()}({own})")
        lines.append("#endif")
    return "\n".join(lines) + "\n"


def _gradients(signature: Any, masks: int) -> "List[str]":
    """The line of C++ that says which output is the gradient of each input behind the first, -1 for none.

    The first is an incoming gradient, and masks have no gradient; without the line, each of the others has
    an output of its own.
    """
    outputs = [*signature.outputs]
    places = ", ".join(map(str, [-1] * (signature.results - 1) + outputs + [-1] * masks))
    needed = signature.gradients or (len(outputs) > 1 and (signature.results > 1 or masks))
    return [f"#define FUSEGEN_GRADIENTS {{{places}}}"] if needed else []


def expected(dtypes: "Tuple[Any, ...]") -> str:
    """Return the sentence that refuses other dtypes than a kernel's."""
    names = _names(dtypes)
    listed = " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"expected {listed} tensors, all of one dtype"


def _names(dtypes: "Tuple[Any, ...]") -> "List[str]":
    return [str(dtype).rpartition(".")[2] for dtype in dtypes]


@functools.lru_cache(maxsize=None)
def header(name: str) -> str:
    """Return a header of this runtime; a standalone file has them inside."""
    held: "Any" = getattr(globals().get("__loader__"), "headers", None)
    if held is not None:
        return str(held[name])
    return (pathlib.Path(__file__).parent / "include" / name).read_text(encoding="utf-8")
