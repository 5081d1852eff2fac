"""The CUDA toolkit of this machine: CUDA_HOME's, that of PATH, or the packages of pip."""

import shlex
from importlib.util import find_spec
from os import environ
from pathlib import Path

from fusegen.errors import NoCudart, NotACommand, Span

LIBRARIES = ("lib64", "lib", "lib/*-linux-gnu", "targets/*/lib")  # NVIDIA's, pip's, Debian's, conda's


def home() -> Path | None:
    """Return the folder of the toolkit; None if there is no nvcc."""
    from torch.utils import cpp_extension

    found = cpp_extension.CUDA_HOME
    packages = find_spec("nvidia")
    installed = (packages.submodule_search_locations if packages else None) or ()
    places = [*([Path(found)] if found else ()), *(Path(folder) / "cu13" for folder in installed)]
    return next((place for place in places if (place / "bin" / "nvcc").exists()), None)


def command(variable: str) -> list[str]:
    """Return the words of a command in an environment variable; none if it is not set.

    Raises:
        NotACommand: a shell would not read it.
    """
    written = environ.get(variable, "")
    try:
        return shlex.split(written)
    except ValueError as error:
        why = str(error)[:1].lower() + str(error)[1:]
        raise NotACommand(Span(variable), command=written, why=why) from None


def nvcc(toolkit: Path) -> list[str]:
    """Return the words of nvcc's command: those of PYTORCH_NVCC, as PyTorch reads it, or the toolkit's.

    Raises:
        NotACommand: as of `command`.
    """
    return command("PYTORCH_NVCC") or [str(toolkit / "bin" / "nvcc")]


def cudart(toolkit: Path) -> Path:
    """Return the shared library of the CUDA runtime, under the name of its major version.

    Raises:
        NoCudart: the toolkit has none.
    """
    found = [path for folder in LIBRARIES for path in sorted(toolkit.glob(f"{folder}/libcudart.so.*"))]
    if not found:
        raise NoCudart(Span(toolkit.as_posix()), folders=", ".join(LIBRARIES))
    return min(found, key=lambda path: len(path.name))
