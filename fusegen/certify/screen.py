"""The screen: a formula and its derivatives in intervals of doubles, compiled, held against every float.

The interval of a value holds it for certain: sums, products and quotients are widened where they are not
exact, by an exact test, and what the math libraries compute by more than they are documented to err. An
input is decided where its intervals are narrower than 2**-12 of a float's unit, so that its error is known
that well, and no input with a larger one can hide. All others are listed, and left to `enclosures`, which
decides them with as many digits as they need. A result so near to a tie that its interval holds the tie
counts as rounded correctly on either side.

On the CPU, up to 4096 neighbouring inputs are decided together where Taylor polynomials with intervals for
coefficients are as narrow (`screen_series.h.j2`); kinks, ties and whatever they leave open goes one by one.

What doubles would lose to cancellation is rewritten (`_rewritten`); sums that cancel elsewhere are listed.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from fusegen import render
from fusegen.term import Apply, Name, Number, Program, Term, call

TEMPLATE, SERIES = "screen.cpp.j2", "screen_series.h.j2"
CPU_FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
             "-std=c++17", "-w")  # fmt: skip
CUDA_FLAGS = ("-O3", "--fmad=false", "-std=c++17", "-w")
BUCKETS, ROOM = 512, 2**20
ONE = Number(Fraction(1))
Pairs = ctypes.c_uint64 * 2


class Tally(ctypes.Structure):
    """What a sweep has found so far, as the template declares it; of pairs, ours is the first."""

    _fields_ = [
        ("worst", ctypes.c_uint64 * BUCKETS * 2 * 2),
        ("misrounded", Pairs * 2),
        ("overflows", Pairs * 2),
        ("differing", Pairs),
        ("further", Pairs),
        ("falls", Pairs),
        ("alien", ctypes.c_uint64),
        ("first_alien", ctypes.c_uint64),
        ("worst_alien", ctypes.c_uint64),
        ("lowest", ctypes.c_double * 2),
        ("highest", ctypes.c_double * 2),
        ("lowest_given", ctypes.c_double * 2),
        ("highest_given", ctypes.c_double * 2),
        ("open", ctypes.c_uint64),
    ]

    @classmethod
    def empty(cls) -> Tally:
        """A tally of nothing; ends of ranges are kept as maxima, the lower ones negated."""
        tally = cls()
        tally.first_alien = 2**64 - 1
        for ends in (tally.lowest, tally.highest, tally.lowest_given, tally.highest_given):
            ends[:] = [-math.inf, -math.inf]
        return tally


class Task(ctypes.Structure):
    """What a sweep reads: values and derivatives, ours and eager's, for consecutive bit patterns."""

    _fields_ = [
        ("given", ctypes.c_void_p * 2),
        ("eager", ctypes.c_void_p * 2),
        ("count", ctypes.c_int64),
        ("start", ctypes.c_uint32),
        ("open", ctypes.c_void_p),
        ("room", ctypes.c_uint64),
    ]


class Screen:
    """One formula with its parameters fixed; its libraries are built when first needed, and kept."""

    def __init__(self, program: Program, params: Mapping[str, Fraction]) -> None:
        """Print the formula."""
        self.program = program
        lines = [f"const D {name}_ = {_number(value)};" for name, value in params.items()]
        lines += [f"const D {let.name}_ = {_text(let.term)};" for let in program.lets]
        lines += [f"return {_text(program.results[0])};"]
        inputs = [f"{name}_" for name in program.inputs]
        series = render.fill(SERIES, {})
        self.text = render.fill(TEMPLATE, {"inputs": inputs, "lines": lines, "series": series})

    @cached_property
    def cpu(self) -> ctypes.CDLL:
        """The library for the CPU.

        Raises:
            RuntimeError: there is no C++ compiler, or it fails.
        """
        compiler = shutil.which(os.environ.get("CXX", "c++"))
        return _built("cpu", self.text, ".cpp", (compiler or "c++", *CPU_FLAGS, "-shared", "-fPIC"))

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
        """Where float32 results of a device are judged: on a GPU wherever one can be built for."""
        return "cuda" if device == "cuda" or (torch.cuda.is_available() and _nvcc().exists()) else "cpu"

    def library(self, place: str) -> ctypes.CDLL:
        """The library for ``cpu`` or ``cuda``."""
        return self.cuda if place == "cuda" else self.cpu

    def enclose(self, *inputs: Tensor, least_normal: float) -> Tensor:
        """Ends and sizes of the intervals at some points.

        Args:
            inputs: float64 tensors of one dimension and n elements, on the CPU.
            least_normal: of the dtype that kernels compute in.

        Returns:
            A float64 tensor of shape (1 + inputs, n, 3): lower end, upper end, and the size of the largest
            term of the sum that the value is, first for the value and then for each derivative.
        """
        points = torch.stack([t.double().contiguous() for t in inputs])
        reals = torch.empty(1 + len(inputs), points.shape[1], 3, dtype=torch.float64)
        self.cpu.enclose(
            ctypes.c_void_p(points.data_ptr()),
            ctypes.c_int64(points.shape[1]),
            ctypes.c_double(least_normal),
            ctypes.c_void_p(reals.data_ptr()),
        )
        return reals


def _text(term: Term) -> str:
    match term:
        case Number(value):
            return _number(value)
        case Name(name):
            return f"{name}_"
        case Apply():
            better = _rewritten(term)
            if better is not None:
                return _text(better)
            match term:
                case Apply("add" | "sub" | "mul" | "div" as op, (a, b)):
                    return f"({_text(a)} {SYMBOLS[op]} {_text(b)})"
                case Apply("neg", (a,)):
                    return f"(-{_text(a)})"
                case Apply("pow", (base, Number(exponent))) if exponent in POWERS:
                    return POWERS[exponent].format(_text(base))
            return f"{term.op}{'' if term.args else '<D>'}({', '.join(map(_text, term.args))})"
    raise AssertionError("compose has replaced every call of a spec")


SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
POWERS = {
    Fraction(2): "square({})",
    Fraction(3): "cube({})",
    Fraction(4): "square(square({}))",
    Fraction(1, 2): "sqrt({})",
    Fraction(-1): "reciprocal({})",
    Fraction(-1, 2): "rsqrt({})",
    Fraction(-2): "reciprocal(square({}))",
}


def _rewritten(term: Apply) -> Term | None:
    """The same function, in a form in which doubles do not cancel; nothing where there is none."""
    match term:
        case Apply("sub", (u, Apply("tanh", (v,)))) if u == v:
            return Apply("tanhshrink", (u,))
        case Apply(
            "div", (u, Apply("add", (Apply("abs", (v,)), Number(Fraction(numerator=1, denominator=1)))))
        ) if u == v:
            return Apply("soft_sign", (u,))
        case Apply("tanh", (Apply("exp", (u,)),)):
            return Apply("tanh_exp", (u,))
        case Apply("add", (Number(Fraction(numerator=1, denominator=1)), Apply("tanh", (u,)))) | Apply(
            "add", (Apply("tanh", (u,)), Number(Fraction(numerator=1, denominator=1)))
        ):
            return 2 * call("sigmoid", 2 * u)
        case Apply("sub", (Number(Fraction(numerator=1, denominator=1)), Apply("tanh", (u,)))):
            return 2 * call("sigmoid", -2 * u)
    return None


def _number(value: Fraction) -> str:
    """The narrowest interval of doubles around a number."""
    try:
        near = float(value)
    except OverflowError:
        return "number<D>(-INF, INF)"
    low = near if Fraction(near) <= value else math.nextafter(near, -math.inf)
    high = near if Fraction(near) >= value else math.nextafter(near, math.inf)
    return f"number<D>({low.hex()}, {high.hex()})"


def _nvcc() -> Path:
    from torch.utils.cpp_extension import CUDA_HOME

    return Path(CUDA_HOME or "/usr/local/cuda") / "bin" / "nvcc"


def _built(target: str, text: str, suffix: str, command: tuple[str, ...]) -> ctypes.CDLL:
    """The library of a text, built unless the same was built before, below TORCH_EXTENSIONS_DIR."""
    default = Path.home() / ".cache" / "torch_extensions"
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR", default)) / "fusegen"
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(repr((text, command)).encode()).hexdigest()[:16]
    library = folder / f"screen_{target}_{digest}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as build:
            source, made = Path(build) / f"screen{suffix}", Path(build) / "screen.so"
            source.write_text(text, encoding="utf-8")
            done = subprocess.run([*command, str(source), "-o", str(made)], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"the screen did not compile for {target}: {done.stderr[:2000]}")
            os.replace(made, library)
    return ctypes.CDLL(str(library))
