"""The CUDA toolkit of this machine: CUDA_HOME's, that of PATH, or the packages of pip."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from os import environ
from pathlib import Path


def home() -> Path | None:
    """The folder of the toolkit; None if there is no nvcc."""
    from torch.utils import cpp_extension

    found = cpp_extension.CUDA_HOME
    packages = find_spec("nvidia")
    installed = (packages.submodule_search_locations if packages else None) or ()
    places = [*([Path(found)] if found else ()), *(Path(folder) / "cu13" for folder in installed)]
    return next((place for place in places if (place / "bin" / "nvcc").exists()), None)


def nvcc(toolkit: Path) -> list[str]:
    """The words of nvcc's command: those of PYTORCH_NVCC, as PyTorch reads it, or the toolkit's."""
    return shlex.split(environ.get("PYTORCH_NVCC", "")) or [str(toolkit / "bin" / "nvcc")]


def cudart(toolkit: Path) -> Path:
    """The shared library of the CUDA runtime, under the name of its major version."""
    found = [path for folder in ("lib64", "lib") for path in (toolkit / folder).glob("libcudart.so.*")]
    return min(found, key=lambda path: len(path.name))
