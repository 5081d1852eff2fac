"""The interval filter: a formula and its derivatives in double interval arithmetic, for every float32.

An interval is certain to contain its value: sums, products and quotients are widened where an exact test
finds them inexact, and results of the math libraries by more than their documented errors. An
input is decided where its intervals are narrower than 2**-12 ulp, so that its error is known that well, and
no input with a larger one can hide. All others are listed, and left to `enclosures`, which decide them with
as many digits as they need. A result so near to a tie that its interval holds the tie counts as rounded
correctly on either side.

On the CPU, up to 4096 neighbouring inputs are decided together where Taylor polynomials with intervals for
coefficients are as narrow (`include/together.h`); kinks, ties and all that they leave open one by one.

The program is one in which little cancels (`Subject.stable`); `guard` compares it with the formula.
"""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import tempfile
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from fusegen.core.digest import digest
from fusegen.core.term import Program
from fusegen.core.timing import LOG, timed
from fusegen.evidence.certify.findings import Ranges
from fusegen.evidence.certify.host import compiler
from fusegen.evidence.certify.interval_filter_text import source
from fusegen.project import toolkit
from fusegen.project.library_folder import build_folder, is_trusted

CPU_FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
             "-std=c++17", "-w")  # fmt: skip
CUDA_FLAGS = ("-O3", "--fmad=false", "-std=c++17", "-w")
ROOM = 2**25
Pairs = ctypes.c_uint64 * 2


class SweepTotals(ctypes.Structure):
    """The results of a sweep so far, as `include/totals.h` declares it; of pairs, ours is the first."""

    _fields_ = [
        ("misrounded", Pairs * 2),
        ("overflows", Pairs * 2),
        ("bits_differ", Pairs),
        ("worse_than_eager", Pairs),
        ("monotonicity_breaks", Pairs),
        ("mismatches", ctypes.c_uint64),
        ("first_mismatch", ctypes.c_uint64),
        ("worst_mismatch", ctypes.c_uint64),
        ("lowest", ctypes.c_double * 2),
        ("highest", ctypes.c_double * 2),
        ("lowest_given", ctypes.c_double * 2),
        ("highest_given", ctypes.c_double * 2),
        ("open", ctypes.c_uint64),
    ]

    @classmethod
    def empty(cls) -> SweepTotals:
        """Return the totals of nothing; ends of ranges are kept as maxima, the lower ones negated."""
        totals = cls()
        totals.first_mismatch = 2**64 - 1
        for ends in (totals.lowest, totals.highest, totals.lowest_given, totals.highest_given):
            ends[:] = [-math.inf, -math.inf]
        return totals


class Task(ctypes.Structure):
    """The inputs of a sweep: values and derivatives, ours and eager's, for consecutive bit patterns."""

    _fields_ = [
        ("given", ctypes.c_void_p * 2),
        ("eager", ctypes.c_void_p * 2),
        ("count", ctypes.c_int64),
        ("start", ctypes.c_uint32),
        ("open", ctypes.c_void_p),
        ("room", ctypes.c_uint64),
        ("cells", ctypes.c_void_p * 4),
    ]


class IntervalFilter:
    """One formula with its parameters fixed; its libraries are built when first needed, and kept."""

    def __init__(
        self,
        program: Program,  # in which little cancels
        params: Mapping[str, Fraction],  # a number for each of its parameters
        # the ranges of inputs that are judged, where they are not all
        assume: Ranges = MappingProxyType({}),
    ) -> None:
        self.text = source(program, params, assume)

    @cached_property
    def cpu(self) -> ctypes.CDLL:
        """The library for the CPU.

        Raises:
            RuntimeError: there is no C++ compiler, or it fails.
        """
        return _built("cpu", self.text, ".cpp", (*compiler(), *CPU_FLAGS, "-shared", "-fPIC"))

    @cached_property
    def cuda(self) -> ctypes.CDLL:
        """The library for the current GPU.

        Raises:
            RuntimeError: there is no nvcc, or it fails.
        """
        chip = "sm_{}{}".format(*torch.cuda.get_device_capability())
        return _built(
            chip,
            self.text,
            ".cu",
            (str(_nvcc()), *CUDA_FLAGS, f"-arch={chip}", "-shared", "-Xcompiler=-fPIC"),
        )

    def place(self, device: str) -> str:
        """Return the device that filters float32 results: a GPU wherever one can be built for."""
        return "cuda" if device == "cuda" or (torch.cuda.is_available() and _nvcc().exists()) else "cpu"

    def library(self, place: str) -> ctypes.CDLL:
        """Return the library for ``cpu`` or ``cuda``."""
        return self.cuda if place == "cuda" else self.cpu

    def enclose(self, *inputs: Tensor) -> Tensor:
        """Return the intervals at some points.

        Args:
            inputs: float64 tensors of one dimension and n elements, on the CPU.

        Returns:
            A float64 tensor of shape (1 + inputs, n, 2): lower and upper end, of the value and then of each
            derivative.
        """
        points = torch.stack([t.double().contiguous() for t in inputs])
        reals = torch.empty(1 + len(inputs), points.shape[1], 2, dtype=torch.float64)
        self.cpu.enclose(
            ctypes.c_void_p(points.data_ptr()),
            ctypes.c_int64(points.shape[1]),
            ctypes.c_void_p(reals.data_ptr()),
        )
        return reals


def _nvcc() -> Path:
    return (toolkit.home() or Path("/usr/local/cuda")) / "bin" / "nvcc"


def _built(target: str, text: str, suffix: str, command: tuple[str, ...]) -> ctypes.CDLL:
    """Return the library of a text, built unless the same was built before."""
    folder = build_folder()
    folder.mkdir(0o755, parents=True, exist_ok=True)
    if not is_trusted(folder):
        raise RuntimeError(f"other users can write {folder}, whose libraries are loaded; chmod 755 it")
    library = folder / f"interval_filter_{target}_{digest(repr((text, command)), 16)}.so"
    if not (library.exists() and is_trusted(library)):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            source, made = Path(place) / f"interval_filter{suffix}", Path(place) / "interval_filter.so"
            source.write_text(text, encoding="utf-8")
            build = [*command, str(source), "-o", str(made)]
            done = timed(
                f"build {library.name}", subprocess.run, build, capture_output=True, text=True, check=False
            )
            if done.returncode:
                LOG.info("%s", done.stderr)
                raise RuntimeError(f"the filter did not compile for {target}: {done.stderr[:2000]}")
            os.replace(made, library)
    return ctypes.CDLL(str(library))
