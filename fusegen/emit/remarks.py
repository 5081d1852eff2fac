"""The remarks above a kernel: its arithmetic, and the methods that are not the formula alone."""

from __future__ import annotations

from collections.abc import Iterator

from fusegen.emit.kernels import emitted
from fusegen.ir import Device, Kernel, Math, operations
from fusegen.links import linked
from fusegen.method import Pass
from fusegen.notes import noteworthy, told
from fusegen.ops import SINGLES
from fusegen.pipeline import Compiled
from fusegen.printers.cpp import double_word

DOUBLE_WORD = "Double-word arithmetic (hi + lo), rounded once."
LINKED = "Double-word arithmetic (hi + lo), rounded once; in float, single-word where errors grow little."
ARGUMENTS = "Double-word arithmetic (hi + lo), rounded once; in float, only the arguments are double-word."
LINEAR = "Near zero, the linear term, since low words would underflow."


def remarks(of: Compiled, which: Pass, device: Device) -> Iterator[str]:
    """The remarks on a pass on a device."""
    first, *_ = emitted(of, which, device)
    yield from arithmetic(first)
    yield from told(noteworthy(of.plan.of(which, device)))


def arithmetic(kernel: Kernel) -> Iterator[str]:
    """The remarks on the arithmetic of a kernel."""
    if double_word(kernel):
        on_cuda = (kernel.device, kernel.math) == (Device.CUDA, Math.FLOAT)
        single = not SINGLES.isdisjoint(operations(kernel))
        yield LINKED if linked(kernel) else ARGUMENTS if on_cuda and single else DOUBLE_WORD
    if kernel.device is Device.CPU and "scaled" in operations(kernel):  # nothing else is scaled there
        yield LINEAR
