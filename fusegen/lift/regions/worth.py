"""The memory traffic of a region in eager and in a kernel of its own.

Eager reads the operands and writes the result of each operation. A kernel reads the region's inputs once
and writes its result. A region that saves no traffic is left to PyTorch: one operation that eager runs in
one pass is as fast there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor, fx

from fusegen.lift.graph import name_of
from fusegen.lift.regions.aliases import layer_of
from fusegen.lift.regions.examples import hint, value_of
from fusegen.lift.regions.partition import Region

# Operations that eager runs in several kernels, with their number; detach runs none.
PASSES = {"softsign": 3, "tanhshrink": 2, "masked_fill": 2, "detach": 0}


@dataclass(frozen=True)
class Traffic:
    """The bytes that a region moves.

    Attributes:
        passes: the kernels that eager runs.
        eager: the bytes that these read and write.
        kernel: the bytes that one kernel reads and writes.
    """

    passes: int
    eager: int
    kernel: int

    @property
    def saved(self) -> int:
        """The bytes that a kernel saves."""
        return self.eager - self.kernel

    @property
    def is_worth_a_kernel(self) -> bool:
        """True if a kernel moves fewer bytes than eager."""
        return self.saved > 0


def traffic(region: Region) -> Traffic:
    """The traffic of a region on the example inputs."""
    passes = [passes_of(part.node) for part in region.parts]
    moved = [sum(map(size, part.reads)) + size(part.node) for part in region.parts]
    eager = sum(count * of for count, of in zip(passes, moved, strict=True))
    return Traffic(sum(passes), eager, sum(map(size, region.inputs)) + size(region.result))


def passes_of(node: fx.Node) -> int:
    """The kernels that eager runs for an operation."""
    layer = layer_of(node)
    name = type(layer).__name__ if layer is not None else name_of(node)
    return PASSES.get(name.strip("_").lower().split(".")[0], 1)


def size(node: fx.Node) -> int:
    """The bytes of a node's value."""
    value: Tensor = value_of(node)
    return math.prod(map(hint, value.shape)) * value.element_size()
