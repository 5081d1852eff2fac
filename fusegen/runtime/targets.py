"""The targets of a library: GPU architectures, or the vector instructions of a CPU.

A GPU architecture is written as in the names of nvcc, ``90`` for sm_90, and as ``90ptx`` where the library
holds its PTX, too, which newer GPUs compile.
"""

import os
import re
from typing import List, Optional, Tuple

import torch

from . import flags, flavour

FEATURES = {  # by kernel: the chips whose own instructions it uses
    kernel: {"90": "90a"} for kernel in ("convolved", "multiplied", "together", "apart")
}
VECTORS = ("DEFAULT", "AVX2", "AVX512")  # of a CPU, as PyTorch names them; each includes those before it
ARCHITECTURE = re.compile(r"(\d+)\.(\d)[af]?(\+PTX)?")  # as in TORCH_CUDA_ARCH_LIST
SEPARATOR = re.compile(r"[\s;,]+")


def here(device: str) -> "Tuple[str, ...]":
    """Return the architectures of the GPUs that are present, or the vector instructions of the CPU."""
    if device == "cpu":
        return (flavour.capability(),)
    count = torch.cuda.device_count()
    return tuple(sorted({"%d%d" % torch.cuda.get_device_capability(k) for k in range(count)}))


def wanted(device: str) -> "Tuple[str, ...]":
    """The targets of a build on first use: those here, and the architectures of TORCH_CUDA_ARCH_LIST."""
    if device == "cpu":
        return here(device)
    listed = SEPARATOR.split(os.environ.get("TORCH_CUDA_ARCH_LIST", ""))
    return tuple(sorted({*here(device), *filter(None, map(architecture, listed))}))


def architecture(text: str) -> "Optional[str]":
    """Return the architecture that an entry such as ``9.0`` or ``9.0+PTX`` names; None if it is no number.

    The suffixes of 9.0a and 10.0f are dropped: `flags_of` has those of the kernels that need them.
    """
    found = ARCHITECTURE.fullmatch(text)
    return f"{found[1]}{found[2]}{'ptx' if found[3] else ''}" if found else None


def flags_of(device: str, targets: "Tuple[str, ...]", kernel: str = "") -> "List[str]":
    """Return the compilers' flags for some targets, of a kernel.

    The machine code of a layer for sm_90 is that of sm_90a, which has products of warpgroups.
    """
    if device == "cpu":
        return [flag for target in targets for flag in flags.CPU_ISA.get(target, [])]
    own = FEATURES.get(kernel, {})
    kinds = [(target[:-3], "compute") for target in targets if target.endswith("ptx")]
    kinds += [(target[:-3] if target.endswith("ptx") else target, "sm") for target in targets]
    kinds = [(own.get(chip, chip) if kind == "sm" else chip, kind) for chip, kind in kinds]
    found = [f"-gencode=arch=compute_{chip},code={kind}_{chip}" for chip, kind in sorted({*kinds})]
    return found + [f"-DFUSEGEN_SM{chip.upper()}" for chip in sorted(own.values()) if (chip, "sm") in kinds]


def serves(device: str, targets: "Tuple[str, ...]", present: "Tuple[str, ...]") -> bool:
    """Return True if a library for some targets runs on every processor that is present."""
    if device == "cpu":
        return all(_runs_vectors(target, chip) for target in targets for chip in present)
    return all(any(_runs_architecture(target, chip) for target in targets) for chip in present)


def _runs_vectors(target: str, chip: str) -> bool:
    known = target in VECTORS and chip in VECTORS
    return VECTORS.index(target) <= VECTORS.index(chip) if known else target == chip


def _runs_architecture(target: str, chip: str) -> bool:
    """Machine code runs on its own and later minor versions of a major version, PTX on all later ones."""
    if target.endswith("ptx"):
        return int(target[:-3]) <= int(chip)
    return target[:-1] == chip[:-1] and int(target[-1]) <= int(chip[-1])
