"""The sources and flags that a library is built from, and the digest by which it is found."""

import os
from typing import Any, Dict, Tuple

import torch

from . import flags, flavour, library_names, targets
from .by_dtype import BINDING
from .cache import digest
from .headers import without_comments
from .sources import Texts, header

PARTS = {  # of a text, in the library of a kernel
    "forward": ("WITHOUT_BACKWARD",),
    "backward": ("WITHOUT_FORWARD",),
    "convolved": ("WITHOUT_FORWARD", "WITHOUT_BACKWARD", "WITH_CONVOLVED"),
    "multiplied": ("WITHOUT_FORWARD", "WITHOUT_BACKWARD", "WITH_MULTIPLIED"),
    "together": ("WITHOUT_APART",),
    "apart": ("WITHOUT_TOGETHER",),
    "drawn_out": (),
    "transposed_out": (),
}
ELEMENTS = "typename F::Elements()"  # the dtypes for which a loop on the CPU is compiled
SYMBOL = "kernel"  # in place of a module's name in libraries that are looked into one by one


def file_name(namespace: str, of: "Tuple[str, str]", recipe: "Dict[str, Any]") -> str:
    """Return the name of a library in the folder of builds.

    Args:
        namespace: of the operators.
        of: the kernel and the device.
        recipe: the sources and the flags, with those of the targets.
    """
    content = digest(repr((torch.__version__, os.uname().machine, _bare(recipe))))
    return "_".join((namespace, *of, content)) + ".so"


def recipe_of(of: Texts, kernel: str, device: str) -> "Dict[str, Any]":
    """Return the sources and the flags of a kernel, without those of its targets, and without its names."""
    without = _without(kernel)
    cpp, cuda, cuda_flags = [without, of.binding, of.cpu], [], []
    if device == "cuda":
        text = of.joined if kernel in ("convolved", "multiplied") else of.cuda
        cpp, cuda = [without, "#define ON_CUDA", of.on_cuda], [without, text]
        cuda_flags = list(flags.CUDA_FLAGS)
    cpp = [text.replace('"KEY"', f'"{device.upper()}"') for text in cpp]
    sources = {"cpp_sources": cpp, "cuda_sources": cuda}
    system = flavour.SYSTEM if device == "cpu" else {}
    return {
        "kernel": kernel,
        "headers": {path: header(name) for path, name in system.items()},
        "files": ["binding", "main"],
        **_under_symbol({key: list(map(_in_ascii, texts)) for key, texts in sources.items()}, of.name),
        "extra_cflags": list(flavour.CPU_FLAGS),
        "extra_cuda_cflags": cuda_flags,
    }


def recipe_of_part(of: Texts, kernel: str, part: str) -> "Dict[str, Any]":
    """Return the same of a library of a kernel for the CPU: its binding, or its functions of a dtype."""
    text, file, first = of_dtype(of.cpu, part), "main", _without(kernel)
    if part == BINDING:
        text, file = of.binding.replace('"KEY"', '"CPU"'), "binding"
        first += "\n#define FUSEGEN_BY_DTYPE"
    return {
        "kernel": kernel,
        "headers": {path: header(name) for path, name in flavour.SYSTEM.items()},
        "files": [file],
        "cpp_sources": [first, library_names.under(SYMBOL, _in_ascii(text), of.name)],
        "cuda_sources": [],
        "extra_cflags": list(flavour.CPU_FLAGS),
        "extra_cuda_cflags": [],
    }


def _without(kernel: str) -> str:
    """Return the lines of C++ that leave other kernels out."""
    return "\n".join(f"#define {part}" for part in PARTS[kernel])


def of_dtype(cpu: str, name: str) -> str:
    """Return the C++ of a kernel for the CPU with the loops for one dtype alone."""
    return cpu.replace(ELEMENTS, f"Dtypes<{name.upper()}>()")


def _under_symbol(sources: "Dict[str, Any]", name: str) -> "Dict[str, Any]":
    """Return sources with a symbol in place of the module's name: one for each text of the kernels."""
    common = {key: [library_names.under("kernel", text, name) for text in sources[key]] for key in sources}
    symbol = f"kernel_{digest(repr(_bare(common)))}"
    return {key: [library_names.under(symbol, text, name) for text in sources[key]] for key in sources}


def for_targets(recipe: "Dict[str, Any]", device: str, chosen: "Tuple[str, ...]") -> "Dict[str, Any]":
    """Return a recipe with the flags of its targets; the code of the host is for the CPU that is here."""
    host = targets.flags_of("cpu", chosen if device == "cpu" else targets.here("cpu"))
    chips = targets.flags_of("cuda", chosen, recipe["kernel"]) if device == "cuda" else []
    cflags, cuda_cflags = recipe["extra_cflags"] + host, recipe["extra_cuda_cflags"] + chips
    return {**recipe, "extra_cflags": cflags, "extra_cuda_cflags": cuda_cflags}


def content_of(recipe: "Dict[str, Any]") -> str:
    """Return the digest of what a library is built from, whatever its targets."""
    return digest(repr((os.uname().machine, _bare(recipe))))


def _bare(recipe: "Dict[str, Any]") -> "Dict[str, Any]":
    """Return a recipe whose sources have no comments, which decide nothing."""
    bare = {key: list(map(without_comments, recipe[key])) for key in ("cpp_sources", "cuda_sources")}
    headers = {path: without_comments(text) for path, text in recipe.get("headers", {}).items()}
    return {**recipe, **bare, "headers": headers}


def _in_ascii(text: str) -> str:
    """Return a source that can be written in any locale: comments have letters that are not ASCII."""
    return text.encode("ascii", "backslashreplace").decode()
