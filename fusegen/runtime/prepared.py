"""Launches on dense tensors that are prepared for a dtype and a GPU, so that a call packs few bytes."""

import struct
from typing import Any, Optional, Sequence, Tuple

import torch

from . import driver
from .layouts import Layout, packed
from .program import Compute


class Plan:
    """A launch for tensors of one dtype and GPU that lie in memory in one order, without gaps.

    Attributes:
        device: the index of the GPU.
        elements: that a block computes.
    """

    def __init__(self, module: str, compute: Compute, of: "Tuple[torch.dtype, Any, int, int]") -> None:
        """Prepare the argument.

        Args:
            module: its name.
            compute: the kernel.
            of: the dtype, the index of the GPU, the number of tensors, and that of the scalars.
        """
        dtype, self.device, tensors, scalars = of
        self.module, self.compute = module, compute
        self.elements = compute.threads * compute.vectors * 16 // torch.empty(0, dtype=dtype).element_size()
        whole = packed(Layout((0,), ((1,),) * tensors, (0,) * tensors), dtype, True, ())
        pointers, shape = f"={tensors}Qq", "2iQ2?2xi"  # as `packed` has them
        begin, end = struct.calcsize(pointers), struct.calcsize(pointers + shape)
        self.between, self.behind = whole[begin:end], whole[end + 8 :]
        self.head = struct.Struct(f"{pointers}{end - begin}sq").pack
        self.tail = struct.Struct(f"={scalars}d").pack

    def launch(self, pointers: "Sequence[int]", count: int, scalars: "Sequence[float]") -> None:
        """Launch the kernel on so many elements, in the current stream."""
        argument = self.head(*pointers, count, self.between, count) + self.behind + self.tail(*scalars)
        grid = (count + self.elements - 1) // self.elements, self.compute.threads
        stream = torch._C._cuda_getCurrentRawStream(self.device)
        driver.launch_here(self.module, self.device, self.compute.handle, grid, stream, argument)


def addresses(first: Any, tensors: "Sequence[Any]", count: int) -> "Optional[Sequence[int]]":
    """Return where tensors begin, if a plan for the first serves all; else None.

    A tensor that is written to is one of those that are read, or lies elsewhere.

    Args:
        first: of the tensors.
        tensors: those that are read, then those that are written to.
        count: of those that are read.
    """
    dtype, shape, device = first.dtype, first.shape, first.get_device()
    found, bits = [], 0
    for t in tensors:
        if t.dtype is not dtype or t.shape != shape or t.get_device() != device or not t.is_contiguous():
            return None
        pointer = t.data_ptr()
        bits |= pointer
        found.append(pointer)
    if bits % 16:
        return None
    size = first.numel() * first.element_size()
    for out in found[count:]:
        for pointer in found[:count]:
            if -size < out - pointer < size and out != pointer:
                return None
    return found
