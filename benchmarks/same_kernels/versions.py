"""The two versions of a module, each in a process of its own, and what they have built.

In one process they would share PyTorch's operators where their C++ is the same.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from unittest import mock

import torch

from benchmarks.same_kernels.several import spec_of
from benchmarks.same_kernels.text import Recipe
from fusegen.codegen import runtime_text
from fusegen.evidence.certify import module_kernels
from fusegen.project.loader import imported, root
from fusegen.project.runtime_folder import SUFFIXES

KERNELS = ("forward", "backward")
CAPABILITIES = ("DEFAULT", "AVX2", "AVX512")  # of CPUs, as PyTorch tells them apart
Workers = tuple[ProcessPoolExecutor, ProcessPoolExecutor]
T = TypeVar("T")


@cache
def module(path: Path) -> Any:
    """Return a version of a module, imported once."""
    return imported(path)


@dataclass(frozen=True)
class Pair:
    """Two versions of a module."""

    # old, now: their paths
    old: Path
    now: Path
    workers: Workers  # a process for each

    @property
    def name(self) -> str:
        """The module's, with its subfolder."""
        return self.now.relative_to(root(self.now)).with_suffix("").as_posix()

    @property
    def texts(self) -> tuple[str, str]:
        """Both texts."""
        return self.old.read_text(encoding="utf-8"), self.now.read_text(encoding="utf-8")

    @property
    def runtimes(self) -> tuple[dict[str, str], dict[str, str]]:
        """The files of both runtimes, by path."""
        old, now = (files_of(root(path) / runtime_text.FOLDER) for path in (self.old, self.now))
        return old, now

    def ask(self, function: Callable[..., T], *arguments: str) -> tuple[T, T]:
        """Return the answers of a function of a path for both, each in its process."""
        asked = zip(self.workers, (self.old, self.now), strict=True)
        old, now = [worker.submit(function, path, *arguments) for worker, path in asked]
        return old.result(), now.result()


def files_of(runtime: Path) -> dict[str, str]:
    """Return the files of a runtime, by path."""
    paths = (path for path in runtime.rglob("*") if path.suffix in SUFFIXES)
    return {path.relative_to(runtime).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def workers() -> Workers:
    """Return two processes, which begin when they are first asked."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, context), ProcessPoolExecutor(1, context)


class Recorded(Exception):
    """Ends a build that has been recorded."""


def recipes(path: Path, device: str) -> dict[str, Recipe]:
    """Return what each kernel is built from: on CUDA for sm_90, on the CPU by capability.

    It is the arguments of ``load_inline``, or of a module's own build. A key of one of
    several kernels begins with its title.

    Raises:
        RuntimeError: neither is called.
    """
    capabilities = CAPABILITIES if device == "cpu" else ("",)
    spec, whole = spec_of(path.relative_to(root(path)).with_suffix("").as_posix()), module(path)
    titles = (module_kernels.LAST,) if spec is None else module_kernels.titles(spec)
    return {
        f"{title} {kernel} {capability}": _recipe(
            module_kernels.seen(whole, title), kernel, device, capability
        )
        for title in titles
        for kernel in KERNELS
        for capability in capabilities
    }


def _recipe(own: Any, kernel: str, device: str, capability: str) -> Recipe:
    from torch.utils import cpp_extension

    found: Recipe = {}
    told = ""
    namespace = str(own.KERNELS.operators.name)

    def record(**recipe: Any) -> NoReturn:
        found.update(recipe)
        raise Recorded

    replaced = [
        (cpp_extension, "load_inline", record),
        (cpp_extension, "CUDA_HOME", "/usr/local/cuda"),
        (torch.cuda, "device_count", lambda: 1),
        (torch.cuda, "get_device_capability", lambda *_: (9, 0)),
        (torch.backends.cpu, "get_cpu_capability", lambda: capability),
        (torch._C, "_dispatch_has_kernel_for_dispatch_key", lambda *_: False),  # it may be loaded
    ]
    direct = sys.modules.get(f"{type(own.KERNELS).__module__.rpartition('.')[0]}.direct")
    if direct is not None:
        replaced.append((direct, "build", lambda recipe, *_: record(**recipe)))
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(mock.patch.dict("os.environ", TORCH_EXTENSIONS_DIR=folder))
        for target, name, value in replaced:
            stack.enter_context(mock.patch.object(target, name, value))
        try:
            own.KERNELS.load(kernel, device)
        except Exception as error:
            told = str(error)
    if not found:
        raise RuntimeError(f"the {kernel} kernel for {device} is not built: {told}")
    kept = {key: value for key, value in found.items() if key not in ("name", "build_directory")}
    recipe: Recipe = json.loads(json.dumps(kept).replace(namespace, "NAMESPACE"))
    return recipe
