"""Kernels that NVRTC compiles, each for a dtype and a layout; their machine code is kept by content."""

import logging
import pathlib
import re
from dataclasses import dataclass
from typing import Any, Tuple

import torch

from . import driver, library_names, nvrtc
from .cache import OneLineErrors, cache_folder, checksum, digest, locked, publish, read_whole
from .headers import without_comments
from .layouts import NUMBERS
from .sources import program

COMPUTE = re.compile(rb"_Z7computeILi(\d+)ELi(\d+)EEv\w+")  # the name of a kernel in machine code
FILL, TURNS = (1 << 10, 128), 64  # the blocks and the threads of `fill`, and how often it may run
DENSE = ("strided", "dense")
SYMBOL = "kernel"  # in place of a module's name: those of equal kernels share what is compiled


@dataclass(frozen=True)
class KernelKey:
    """A compiled kernel of a module: its name, dtype, layout and GPU."""

    kernel: str  # ``forward`` or ``backward``
    dtype: torch.dtype  # of the tensors
    dense: bool  # whether they have one layout without gaps
    device: int  # the index of the GPU

    @property
    def architecture(self) -> str:
        """The architecture of the GPU, as 90 of sm_90."""
        return "%d%d" % torch.cuda.get_device_capability(self.device)

    @property
    def words(self) -> str:
        """The kernel, the dtype and the layout, as in the names of files."""
        return f"{self.kernel}_{str(self.dtype).rpartition('.')[2]}_{DENSE[self.dense]}"


@dataclass(frozen=True)
class Compute:
    """A kernel that has been loaded."""

    handle: Any  # of the driver
    threads: int  # of a block
    vectors: int  # of 16 bytes of each tensor that a thread computes


def compute(kernels: Any, of: KernelKey) -> Compute:
    """Return a kernel of an `Activation`, compiled unless that was done on this machine, and loaded."""
    name, code = kernels.name, code_of(kernels, of)
    symbol, threads, vectors = named(code)
    with driver.OnDevice(name, of.device), driver.Relaxed():
        loaded = driver.load(name, code)
        if b".text.fill" in code:
            driver.run_turns(name, driver.function(name, loaded, b"fill"), TURNS, FILL)
        return Compute(driver.function(name, loaded, symbol), threads, max(vectors, 1))


def named(code: bytes) -> "Tuple[bytes, int, int]":
    """The name of the kernel in machine code, the threads of its blocks, and the vectors of a thread."""
    found = COMPUTE.search(code)
    assert found is not None, "NVRTC has made no kernel"
    return found[0], int(found[1]), int(found[2])


def code_of(kernels: Any, of: KernelKey) -> bytes:
    """Return the machine code of a kernel, from the folder of builds or from NVRTC."""
    name, architecture = kernels.name, of.architecture
    cuda = library_names.under(SYMBOL, kernels.sources.cuda, name)
    folder, text = cache_folder(name), text_of(cuda, of, architecture)
    content = digest(repr((torch.__version__, nvrtc.OPTIONS, without_comments(text))))
    path = folder / f"{of.words}_sm{architecture}_{content}.cubin"
    known = read_whole(path)
    if known is not None:
        return known
    with locked(name, path.with_suffix(".lock")):
        return read_whole(path) or _compiled(name, of, text, path)


def _compiled(name: str, of: KernelKey, text: str, path: pathlib.Path) -> bytes:
    """The machine code that NVRTC makes of a text, which is kept with its size and digest beside it."""
    compiler, architecture, log = nvrtc.required(name), of.architecture, path.with_suffix(".log")
    logging.getLogger("fusegen").info("compiling %s_%s by NVRTC as %s", name, of.words, path)
    failure = f"the {of.kernel} kernel did not compile with NVRTC for sm_{architecture}"
    with OneLineErrors(name, path.parent, f"{failure}; its output is in {log}", log):
        code = nvrtc.compiled(compiler, text, architecture, nvrtc.include_folders(name))
        publish(path, code)
        publish(path.with_suffix(".sum"), checksum(path, code))
    return code


def text_of(cuda: str, of: KernelKey, architecture: str) -> str:
    """Return the text that NVRTC compiles for a kernel.

    Args:
        cuda: the source of the module.
        of: which kernel.
        architecture: of the GPU, whose launch configuration is chosen.
    """
    lines = ["#define WITHOUT_FORWARD", "#define WITHOUT_BACKWARD"]
    values = {"KERNEL": of.kernel.capitalize(), "DTYPE": NUMBERS[of.dtype], "DENSE": int(of.dense)}
    values["CHIP"] = architecture
    lines += [f"#define FUSEGEN_{name} {value}" for name, value in values.items()]
    return "\n".join((*lines, program(cuda)))
