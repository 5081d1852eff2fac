"""The memory traffic of a region in eager and in a kernel of its own.

Eager reads the operands and writes the result of each operation. A kernel reads the region's inputs once
and writes its result. A region that saves no traffic is left to PyTorch: one operation that eager runs in
one pass is as fast there. On CUDA the call of a kernel costs the CPU some 10 us more than the operations of
PyTorch that it replaces, so that a region has to save what the memory moves in that time.
"""

from __future__ import annotations

import math
import operator
from dataclasses import astuple, dataclass

from torch import Tensor, fx

from fusegen.lift.graph import name_of
from fusegen.lift.regions.aliases import layer_of
from fusegen.lift.regions.examples import hint, value_of
from fusegen.lift.regions.partition import Region

CALL = 1 << 25  # bytes that the memory of a GPU moves while the CPU calls a kernel of ours
# Operations that eager runs in several kernels, with their number; detach runs none.
PASSES = {"softsign": 3, "tanhshrink": 2, "masked_fill": 2, "detach": 0}


@dataclass(frozen=True)
class Traffic:
    """The bytes that a region moves.

    Attributes:
        passes: the kernels that eager runs.
        eager: the bytes that these read and write.
        kernel: the bytes that one kernel reads and writes.
        least: the bytes that a kernel has to save.
    """

    passes: int
    eager: int
    kernel: int
    least: int = 1

    def __add__(self, other: Traffic) -> Traffic:
        """The traffic of both, whose kernels have one call each."""
        mine, theirs = astuple(self), astuple(other)
        return Traffic(*map(operator.add, mine, theirs))

    @property
    def saved(self) -> int:
        """The bytes that a kernel saves."""
        return self.eager - self.kernel

    @property
    def is_worth_a_kernel(self) -> bool:
        """True if a kernel saves enough bytes."""
        return self.saved >= self.least


def traffic(region: Region, beside: int = 0) -> Traffic:
    """The traffic of a region on the example inputs.

    Args:
        region: it.
        beside: the bytes that eager moves for what the kernel does besides, such as to add a bias.
    """
    passes = [passes_of(part.node) for part in region.parts]
    moved = [sum(map(size, part.reads)) + size(part.node) for part in region.parts]
    eager = sum(count * of for count, of in zip(passes, moved, strict=True))
    kernel = sum(map(size, region.inputs)) + size(region.result)
    return Traffic(sum(passes), eager + beside, kernel, least(region))


def least(region: Region) -> int:
    """The bytes that a kernel of a region has to save in a call."""
    return CALL if value_of(region.result).is_cuda else 1


def passes_of(node: fx.Node) -> int:
    """The kernels that eager runs for an operation."""
    return PASSES.get(named(node), 1)


def named(node: fx.Node) -> str:
    """The name of an operation, without capitals: that of the function, or of the class of the layer."""
    layer = layer_of(node)
    name = type(layer).__name__ if layer is not None else name_of(node)
    return name.strip("_").lower().split(".")[0]


def size(node: fx.Node) -> int:
    """The bytes of a node's value."""
    value: Tensor = value_of(node)
    return math.prod(map(hint, value.shape)) * value.element_size()
