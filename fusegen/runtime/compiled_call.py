"""The call of a module's function in C++, at the price of PyTorch's own calls; in Python until it is built.

It is built with PyTorch's C++, which takes some fifteen seconds once for a version of PyTorch and Python,
in the background, from the first kernel on that a process loads. A process has it if it was there when the
module was imported. Results and gradients have the same bits by both.
"""

import contextlib
import functools
import importlib.util
import os
import pathlib
import stat
import sys
import sysconfig
from typing import Any, Callable, List, Tuple

import torch

from . import background, bitmask, tools
from .cache import cache_folder, cache_path, checksum, digest, publish, read_whole, trusted
from .flavour import is_dynamo_compiling
from .headers import inlined, without_comments
from .shared import gradients
from .sources import header

NAME = "compiled_call"
INCLUDED = '#include "compiled_call/module.h"\n'
FLAGS = ("-std=c++17", "-O1", "-w", "-fPIC", "-shared")
LIBRARIES = ("-ltorch_python", "-ltorch_cpu", "-lc10")
NO_BITMASK = 2**62  # elements from which a gradient reads a bitmask, where none does


def in_front(kernels: Any, run: "Callable[..., Any]") -> "Callable[..., Any]":
    """Return a call in C++ of what it takes, and in Python of the rest; only the latter until C++ is built.

    Args:
        kernels: of the module.
        run: the call in Python.
    """
    built = loaded()
    if built is None or kernels.indices:
        return run
    compiled = built.compiled_call(*_described(kernels, run))

    def call(*arguments: Any) -> Any:
        return run(*arguments) if is_dynamo_compiling() else compiled(*arguments)

    return call


def _described(kernels: Any, run: "Callable[..., Any]") -> "Tuple[Any, ...]":
    """Return what C++ needs to know, in the order in which it asks."""
    signature, space = kernels.signature, kernels.operators.name
    saves_output = signature.saved != signature.tensors
    unread = [not saves_output and name in signature.unread for name in signature.tensors]

    def recorded(grad: Any, saved: "List[Any]", params: "List[float]", wanted: "List[bool]") -> Any:
        return gradients(signature, kernels.Backward.apply, (grad, *saved, *params), wanted)

    return (
        f"{space}::{kernels.name}_forward",
        f"{space}::{kernels.name}_backward",
        run,
        recorded,
        tuple(unread),
        signature.outputs,
        signature.params,
        kernels.dtypes,
        bitmask.LARGE if kernels.sources.bitmask else NO_BITMASK,
        saves_output,
        kernels.autocasts,
    )


@functools.lru_cache(None)
def loaded() -> Any:
    """Return the module that C++ gives Python, if it is built and can be loaded, or None."""
    with contextlib.suppress(Exception):  # where it cannot, Python calls
        path = library()
        if trusted(path.parent, stat.S_ISDIR) and read_whole(path) is not None:
            return imported(path)
    return None


def imported(path: pathlib.Path) -> Any:
    """Return the module of a library."""
    spec: Any = importlib.util.spec_from_file_location(NAME, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def library() -> pathlib.Path:
    """Return the path of the library in the folder of builds, which may not be there."""
    of = torch.__version__, sys.implementation.cache_tag, os.uname().machine, FLAGS
    content = digest(repr((of, without_comments(inlined(INCLUDED, header)))))
    return cache_path(NAME) / f"fusegen_{NAME}_{content}.so"


def begin() -> None:
    """Build the library in the background, unless it is there, was tried, or such builds are turned off."""
    with contextlib.suppress(Exception):  # of which no call may fail
        if background.allowed() and loaded() is None and not _is_decided():
            path = cache_folder(NAME) / library().name
            background.build(path, words(), inlined(INCLUDED, header), keep)


def _is_decided() -> bool:
    """Return True if the library is built, or could not be."""
    path = library()
    headers = pathlib.Path(sysconfig.get_paths()["include"], "Python.h")
    return path.exists() or path.with_suffix(".log").exists() or not headers.exists()


def words() -> "List[str]":
    """Return the command that builds the library, of a source main.cpp in a folder, as made.so there."""
    root = os.path.dirname(torch.__file__)
    folders = (
        f"{root}/include",
        f"{root}/include/torch/csrc/api/include",
        sysconfig.get_paths()["include"],
    )
    includes = [word for folder in folders for word in ("-isystem", folder)]
    links = [f"-L{root}/lib", *LIBRARIES]
    return [*tools.find_compiler(NAME), *FLAGS, *includes, "main.cpp", "-o", "made.so", *links]


def keep(path: pathlib.Path, content: bytes) -> None:
    """Write the library, and its size and digest beside it."""
    publish(path, content)
    publish(path.with_suffix(".sum"), checksum(path, content))
