"""The build of a thin convolution's kernel in the background, for nvcc takes some ten seconds.

Until it has ended, PyTorch's convolution runs with the module's kernel behind it; then one kernel does.
Another process that builds the same is waited for; if it ends without a library, this one builds. A call
that a CUDA graph captures neither begins a build nor loads what one has made.
"""

import contextlib
import functools
import logging
import os
import pathlib
import shlex
import tempfile
import time
from typing import Any, List, Optional

import torch

from . import background, build, direct, tools
from .checks import check, reason
from .library_names import definition
from .together import outcome
from .wanted import Wanted

KERNEL, STATE = "convolved", "_fusegen_convolved"  # the latter an attribute of a namespace of operators
SOURCES = ("main.cpp", "main.cu")
WAIT = 10.0  # seconds after which a build that another process had begun is looked for again
LIBRARIES = ("-Wl,--no-as-needed", "-ltorch_cpu", "-lc10", "-ltorch_cuda")


class Building:
    """The build of a kernel that a process has begun.

    Attributes:
        wanted: the library, until it is loaded or has failed.
        builder: the process that builds it; a fork's child is another one.
        again: when to look for that of another process again.
    """

    def __init__(self) -> None:
        self.wanted: "Optional[Wanted]" = None
        self.builder, self.again = 0, 0.0

    def begin(self, kernels: Any) -> None:
        """Begin the build, or tell why there is none."""
        self.wanted, self.again = None, time.monotonic() + WAIT
        failure = outcome(self._begin, kernels)
        if failure is not None:
            tell(kernels, reason(failure, kernels.name))

    def _begin(self, kernels: Any) -> None:
        """Begin the build of a library, unless it is there, or has failed by these tools today."""
        several = build.missing(kernels, kernels.operators, KERNEL, "cuda")
        for wanted in several:
            self.wanted = wanted
            if background.has_failed(wanted.library, wanted.made_by):
                self.end(False)
                continue
            keep = functools.partial(build.keep, made_by=wanted.made_by)
            of = wanted.library, words(wanted), sources(wanted), keep, wanted.made_by, self.end
            self.builder = 0
            with contextlib.suppress(BlockingIOError):  # another process builds it
                background.build(*of)
                self.builder = os.getpid()

    def end(self, made: bool) -> None:
        """Note that a build has ended; one sentence tells of one that made nothing."""
        wanted = self.wanted
        if made or wanted is None:
            return
        self.wanted = None
        log = wanted.library.with_suffix(".log")
        where = f"; the compiler's output is in {log}" if log.exists() else ""
        tell(wanted.kernels, f"the kernel of the convolution was not built for cuda{where}")

    def load(self, kernels: Any) -> bool:
        """Return True if the kernel is loaded, which it is once a build has made the library."""
        wanted = self.wanted
        if wanted is not None and wanted.library.exists() and wanted.library.with_suffix(".sum").exists():
            self.wanted = None
            build.missing(kernels, kernels.operators, KERNEL, "cuda")
        elif wanted is not None and self.builder != os.getpid() and time.monotonic() > self.again:
            self.begin(kernels)
        return build.is_loaded(kernels, kernels.operators, KERNEL, "cuda")


def is_ready(kernels: Any) -> bool:
    """Return True if the kernel is loaded; else its build has begun.

    Where builds in the background are turned off, or algorithms have to be deterministic, it is true, and
    the kernel's first use builds it.
    """
    operators = kernels.operators
    if not build.can_load(kernels, operators, KERNEL):
        return False
    waits = not background.allowed() or torch.are_deterministic_algorithms_enabled()
    if waits or build.is_loaded(kernels, operators, KERNEL, "cuda"):
        return True
    if is_captured():
        return False
    new = Building()
    building = vars(operators).setdefault(STATE, new)
    if building is new:
        new.begin(kernels)
    return bool(building.load(kernels))


def is_captured() -> bool:
    """Return True while a CUDA graph records what runs."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def tell(kernels: Any, reason: str) -> None:
    """Say in a warning why there is no kernel."""
    instead = "PyTorch's convolution runs in its place"
    logging.getLogger("fusegen").warning("%s: %s; %s", kernels.name, reason, instead)


def sources(wanted: Wanted) -> "dict[str, str]":
    """Return the texts that the command compiles."""
    host, cuda = wanted.recipe["cpp_sources"], wanted.recipe["cuda_sources"]
    names = definition(*wanted.names)
    return dict(zip(SOURCES, ("\n".join((names, *host)), "\n".join(cuda))))


def words(wanted: Wanted) -> "List[str]":
    """Return the command that builds a library: the host's part, that of the GPU, and the linker."""
    from torch.utils import cpp_extension

    module, recipe = wanted.kernels.name, wanted.recipe
    compiler, home = tools.find_compiler(module), str(cpp_extension.CUDA_HOME or "")
    check(home != "", module, "no nvcc; install the CUDA toolkit or set CUDA_HOME")
    root = os.path.dirname(torch.__file__)
    includes = [word for folder in (f"{root}/include", f"{home}/include") for word in ("-isystem", folder)]
    with tempfile.TemporaryDirectory() as folder:
        accepted = tools.accepted(recipe["extra_cflags"], compiler, folder)
    of_host = [*compiler, *direct.STANDARD, *accepted, *includes, "-c", "main.cpp", "-o", "host.o"]
    own = [*cpp_extension.COMMON_NVCC_FLAGS, *recipe["extra_cuda_cflags"]]
    nvcc = [*tools.nvcc_command(home), "-std=c++17", "--compiler-options=-fPIC", *own, *includes]
    folders = [f"-L{root}/lib", f"-L{home}/lib64"]
    found = [path for each in ("lib64", "lib") for path in pathlib.Path(home, each).glob("libcudart.so*")]
    cudart = str(min(found)) if found else "-lcudart"  # that of a wheel ends with its version
    link = [*compiler, "-shared", "host.o", "cuda.o", *folders, *LIBRARIES, cudart, "-o", "made.so"]
    commands = of_host, [*nvcc, "-c", "main.cu", "-o", "cuda.o"], link
    return ["sh", "-c", " && ".join(map(shlex.join, commands))]
