"""The memory traffic of a region in eager and in a kernel of its own.

Eager reads the operands and writes the result of each operation. A kernel reads the region's inputs once
and writes its result. A region that saves no traffic is left to PyTorch: one operation that eager runs in
one pass is as fast there. On CUDA the call of a kernel costs the CPU some 10 us more than the operations of
PyTorch that it replaces, so that a region has to save what the memory moves in that time. On a CPU the call
costs as much as two operations of PyTorch, 2.4 us: relu(x + y) gains from 2,048 numbers of float32 on, of
which it saves 16 KiB.
"""

from __future__ import annotations

import math
import operator
from dataclasses import astuple, dataclass

from torch import Tensor, fx

from fusegen.models.lift.regions.own_formulas import dropout_of
from fusegen.models.lift.regions.region import Region
from fusegen.models.reader.aten_calls import calls_of, hint, value_of
from fusegen.models.reader.eager_traffic import moved_by

CALL = {  # bytes that a kernel has to save in a call, by the device
    "cuda": 1 << 25,  # that the memory of a GPU moves while the CPU calls a kernel of ours
    "cpu": 1 << 14,
}
PASSES = "passes"  # the key of the kernels that eager runs for a node, where its operations are not these
UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


@dataclass(frozen=True)
class Traffic:
    """The bytes that a region moves."""

    passes: int  # the kernels that eager runs
    eager: int  # the bytes that these read and write
    kernel: int  # the bytes that one kernel reads and writes

    def __add__(self, other: Traffic) -> Traffic:
        """Return the traffic of both."""
        mine, theirs = astuple(self), astuple(other)
        return Traffic(*map(operator.add, mine, theirs))

    @property
    def saved(self) -> int:
        """The bytes that a kernel saves."""
        return self.eager - self.kernel


def traffic(region: Region, beside: int = 0) -> Traffic:
    """Return the traffic of a region on the example inputs; eager moves the bytes beside, too."""
    passes = [passes_of(part.node) for part in region.parts]
    moved = [sum(map(size, part.reads)) + size(part.node) for part in region.parts]
    eager = sum(count * of for count, of in zip(passes, moved, strict=True))
    kernel = sum(map(size, (*region.inputs, *region.results)))
    return Traffic(sum(passes), eager + beside, kernel)


def least(
    region: Region,  # it
    # the type of that on which it runs; by default that of its result. Without one, a CPU's
    device: str = "",
) -> int:
    """Return the bytes that a kernel of a region has to save in a call."""
    return CALL.get(device or value_of(region.result).device.type, CALL["cpu"])


def passes_of(node: fx.Node) -> int:
    """Return the kernels that eager runs for an operation."""
    if PASSES in node.meta:
        return int(node.meta[PASSES])
    if dropout_of(node) is not None:
        return 1
    calls = calls_of(node)
    made = calls.made if calls is not None else ()
    return sum(moved_by(call.name).kernels for call in made)


def size(node: fx.Node) -> int:
    """Return the bytes of a node's value."""
    value: Tensor = value_of(node)
    return math.prod(map(hint, value.shape)) * value.element_size()


def in_bytes(number: int) -> str:
    """Return a number of bytes in words."""
    size_, unit = next((one for one in UNITS if number >= one[0]), UNITS[-1])
    return f"{number / size_:.3g} {unit}"
