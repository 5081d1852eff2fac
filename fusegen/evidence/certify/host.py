"""The chip, the compiler and the PyTorch of this computer."""

import os
import platform
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from fusegen.evidence.certify.certificate import Machine
from fusegen.project import toolkit
from fusegen.project.library_folder import NO_LIBRARIES, VARIABLE


@contextmanager
def without_libraries() -> Iterator[None]:
    """Use no library that was compiled ahead of time: what is certified is what a build makes here."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = NO_LIBRARIES
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def compiler() -> tuple[str, ...]:
    """Return the command of the C++ compiler: that of CXX, which may have a launcher as in "ccache g++".

    Raises:
        NotACommand: a shell would not read it.
    """
    return tuple(toolkit.command("CXX")) or ("c++",)


def machine(device: str) -> Machine:
    """Return the compiler of a device's kernels, and what they run on."""
    if device == "cuda":
        from torch.utils.cpp_extension import CUDA_HOME

        told = subprocess.run([f"{CUDA_HOME}/bin/nvcc", "--version"], capture_output=True, text=True).stdout
        release = re.search(r"release ([0-9.]+)", told)
        named = f"nvcc {release[1] if release else ''}{_flags()}"
        return Machine(torch.cuda.get_device_name(), torch.__version__, named)
    command = compiler()
    told = subprocess.run([*command, "--version"], capture_output=True, text=True).stdout
    version = re.search(r"\d+\.\d+(\.\d+)?", told)
    chip = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    name = next(Path(word).name for word in reversed(command) if not word.startswith("-"))
    return Machine(chip, torch.__version__, f"{name} {version[0] if version else ''}{_flags()}")


def _flags() -> str:
    words = [word for word in compiler() if word.startswith("-")]
    more = [os.environ[name] for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS") if name in os.environ]
    return " with " + " ".join((*words, *more)) if words or more else ""
