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

from . import background, bitmask, together, tools
from .cache import cache_folder, cache_path, checksum, digest, publish, read_whole, trusted
from .calls import recorded_gradients
from .headers import inlined, without_comments
from .shared import listed
from .sources import header

NAME = "compiled_call"
INCLUDED = '#include "compiled_call/module.h"\n'
FLAGS = ("-std=c++17", "-O1", "-ffp-contract=off", "-w", "-fPIC", "-shared")
BEGUN = "_fusegen_compiled_call"  # where copies of this file tell each other
LIBRARIES = ("-ltorch_python", "-ltorch_cpu", "-lc10")
NONE, ALL = 0, 2**62  # elements below which C++ records the gradient: for no tensor, and for all
PLAIN = "KERNELS run scalar __class__ float with_options write first halves".split()


def in_front(kernels: Any, run: "Callable[..., Any]", *rows: "Tuple[int, ...]") -> "Callable[..., Any]":
    """Return a call in C++ of what it takes, and in Python of the rest; only the latter until C++ is built.

    Args:
        kernels: of the module.
        run: the call in Python.
        rows: what C++ knows of the shapes of rows, where it takes tensors of some shapes only.
    """
    if kernels.indices or kernels.results > 1 or kernels.widens:
        return run
    return _either(kernels, run, _by_kernel(kernels), _counts(kernels), (0, 0), *rows)


def in_front_of_parts(kernels: Any, run: "Callable[..., Any]", cut: "Tuple[int, int]") -> Any:
    """Return the same of a loss of whole tensors.

    Args:
        kernels: of the module.
        run: the call in Python, whose last argument is a reduction.
        cut: the elements of a part, and how many parts there are at most.
    """

    def recorded(grad: Any, saved: "List[Any]", params: "List[float]", reduction: str) -> "List[Any]":
        return recorded_gradients(lambda *tensors: run(*tensors, *params, reduction), saved, grad)

    return _either(kernels, run, recorded, _counts(kernels), cut)


def in_front_of_index(kernels: Any, run: "Callable[..., Any]", recorded: "Callable[..., Any]") -> Any:
    """Return the same of a loss of classes.

    Args:
        kernels: of the module.
        run: the call in Python, whose last arguments are a reduction and the index to ignore.
        recorded: the gradients as autograd records them.
    """
    if kernels.views is not None:
        return run
    reduced = f"{kernels.operators.name}::{kernels.name}_forward_reduced", kernels.reduction
    return _either(kernels, run, recorded, _counts(kernels), (0, 0), kernels.usual_shapes, reduced)


def in_front_of_layer(kernels: Any, run: "Callable[..., Any]", layers: "Tuple[Any, ...]") -> Any:
    """Return the same of a layer with the statistics of batches.

    Args:
        kernels: of the module, with numbers of each channel for a weight and a bias.
        run: the call in Python, of a module, tensors and scalars.
        layers: classes of modules, each with a bit for each number of dimensions it takes, or 0 for any.
    """
    if kernels.channels != 2:
        return run
    counts = kernels.elements, kernels.signature.params - 1  # without what says whose the moments are
    return _either(kernels, run, _by_kernel(kernels), counts, (0, 0), (0,) * 6, (None, None), layers)


def _by_kernel(kernels: Any) -> "Callable[..., Any]":
    """Return the gradients as autograd records them: those of the kernel."""

    def recorded(grad: Any, saved: "List[Any]", params: "List[float]") -> "Tuple[Any, ...]":
        return listed(kernels.Backward.apply(grad, *saved, *params))

    return recorded


def _counts(kernels: Any) -> "Tuple[int, int]":
    """Return how many tensors of one dtype and scalars a call has."""
    return kernels.alike, kernels.signature.params


def _either(kernels: Any, run: Any, recorded: Any, counts: "Tuple[int, int]", *further: Any) -> Any:
    """Return the call in C++, where there is one; dynamo reads the one in Python in its place."""
    built = loaded()
    if built is None:
        return run
    return built.compiled_call(*_described(kernels, run, recorded, counts), *further)


def in_front_of_function(run: Any, function: "Callable[..., Any]") -> Any:
    """Return a module's function with the call in C++ in front, where its common call has that.

    One that names anything but `PLAIN` may refuse scalars, or leave some to PyTorch, which C++ does not.

    Args:
        run: the common call.
        function: reads arguments, and calls it; tensors and scalars in their order it hands on.
    """
    built = loaded()
    is_compiled = built is not None and isinstance(run, built.Callable)
    is_plain = is_compiled and set(PLAIN).issuperset(function.__code__.co_names)
    return built.otherwise(run, function) if is_plain else function


def _in_python(self: Any, *arguments: Any, **options: Any) -> Any:
    """Call in Python: what dynamo reads in place of a call in C++."""
    return self.python(*arguments, **options)


def _described(kernels: Any, run: Any, recorded: Any, counts: "Tuple[int, int]") -> "Tuple[Any, ...]":
    """Return what C++ needs to know, in the order in which it asks.

    Args:
        kernels: of the module.
        run: the call in Python.
        recorded: the gradients as autograd records them.
        counts: how many tensors and scalars a call has.
    """
    signature, space = kernels.signature, kernels.operators.name
    # each tensor is read, and has its own gradient, and the result has one, as places have not
    own = not (signature.unread or signature.gradients or kernels.finds)
    most = bitmask.LARGE if kernels.sources.bitmask else ALL
    return (
        f"{space}::{kernels.name}_forward",
        f"{space}::{kernels.name}_backward",
        run,
        recorded,
        functools.partial(together.join, [kernels], "backward"),
        *counts,
        kernels.dtypes,
        most if own else NONE,
        signature.saved != signature.tensors,
        kernels.autocasts,
        bool(kernels.saves),
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
    made.shown_as(_in_python)
    return made


def library() -> pathlib.Path:
    """Return the path of the library in the folder of builds, which may not be there."""
    of = torch.__version__, sysconfig.get_config_var("SOABI"), os.uname().machine, FLAGS
    content = digest(repr((of, without_comments(inlined(INCLUDED, header)))))
    return cache_path(NAME) / f"fusegen_{NAME}_{content}.so"


def begin() -> None:
    """Build the library in the background, unless it is there, was tried, or such builds are turned off.

    A process begins one build, whichever of its copies of this file does, and the child of a fork none.
    """
    token = object()
    if not background.allowed() or vars(torch.ops).setdefault(BEGUN, token) is not token:
        return
    with contextlib.suppress(Exception):  # of which no call may fail
        path, made_by = cache_folder(NAME) / library().name, tools.made_by("cpu")
        if read_whole(path) is None and _can_build() and not background.has_failed(path, made_by):
            background.build(path, words(), {"main.cpp": inlined(INCLUDED, header)}, keep, made_by)


def _can_build() -> bool:
    """Return True if there are Python's headers, and a Python to start."""
    headers = pathlib.Path(sysconfig.get_paths()["include"], "Python.h")
    return headers.exists() and pathlib.Path(sys.executable).name.startswith("python")


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
    """Write the library, and its size and digest beside it, first: without these it is none."""
    publish(path.with_suffix(".sum"), checksum(path, content))
    publish(path, content)
