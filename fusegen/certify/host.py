"""The chip, the compiler and the PyTorch of this computer."""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

import torch

from fusegen import toolkit
from fusegen.certify.certificate import Machine


def compiler() -> tuple[str, ...]:
    """The command of the C++ compiler: that of CXX, which may have a launcher as in "ccache g++".

    Raises:
        NotACommand: a shell would not read it.
    """
    return tuple(toolkit.command("CXX")) or ("c++",)


def machine(device: str) -> Machine:
    """The compiler of a device's kernels, and what they run on."""
    if device == "cuda":
        from torch.utils.cpp_extension import CUDA_HOME

        told = subprocess.run([f"{CUDA_HOME}/bin/nvcc", "--version"], capture_output=True, text=True).stdout
        release = re.search(r"release ([0-9.]+)", told)
        return Machine(
            torch.cuda.get_device_name(), torch.__version__, f"nvcc {release[1] if release else ''}"
        )
    command = compiler()
    told = subprocess.run([*command, "--version"], capture_output=True, text=True).stdout
    version = re.search(r"\d+\.\d+(\.\d+)?", told)
    chip = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    return Machine(chip, torch.__version__, f"{Path(command[-1]).name} {version[0] if version else ''}")
