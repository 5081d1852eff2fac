"""The argument of a kernel that Python launches: where tensors lie, as `Call` of call.h has it."""

import functools
import math
import struct
from typing import Iterator, NamedTuple, Sequence, Tuple

import torch

from .checks import check

MOST_DIMS = 25  # MAX_RANK of call.h
MOST_INDICES = 2**31 - 1  # elements that a kernel reaches by 32-bit indices
NUMBERS = {torch.float16: 5, torch.float32: 6, torch.float64: 7, torch.bfloat16: 15}  # of c10::ScalarType


class Layout(NamedTuple):
    """The dimensions that kernels walk through, outermost first, and the strides of each tensor."""

    sizes: "Tuple[int, ...]"  # of the dimensions, neighbours merged
    # by tensor, then by dimension, in elements; 0 where a tensor is broadcast
    strides: "Tuple[Tuple[int, ...], ...]"
    pointers: "Tuple[int, ...]"  # the addresses of the first elements, by tensor

    @property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.sizes)

    @property
    def dense(self) -> bool:
        """True if all tensors have one layout without gaps and begin at a multiple of 16 bytes."""
        flat = len(self.sizes) == 1 and all(own[0] == 1 for own in self.strides)
        return flat and self.aligned

    @property
    def aligned(self) -> bool:
        """True if all tensors begin at a multiple of 16 bytes."""
        return all(pointer % 16 == 0 for pointer in self.pointers)


def layout_of(module: str, tensors: "Sequence[torch.Tensor]", shape: "Sequence[int]") -> Layout:
    """Return the layout of tensors that are broadcast to a shape, in the order of the last one's memory."""
    pointers = tuple(t.data_ptr() for t in tensors)
    if all(t.is_contiguous() and t.shape == shape for t in tensors):
        return Layout((math.prod(shape),), ((1,),) * len(tensors), pointers)
    return Layout(
        *_merged(module, tuple(shape), tuple(t.expand(shape).stride() for t in tensors)), pointers
    )


@functools.lru_cache(maxsize=1024)
def _merged(
    module: str, shape: "Tuple[int, ...]", strides: "Tuple[Tuple[int, ...], ...]"
) -> "Tuple[Tuple[int, ...], Tuple[Tuple[int, ...], ...]]":
    """Return the sizes and the strides of the dimensions, neighbours merged; see `Layout`."""
    dims = [(size, steps) for size, *steps in zip(shape, *strides) if size != 1]
    dims.sort(key=lambda dim: dim[1][-1], reverse=True)
    merged = dims[:1] or [(1, [1] * len(strides))]
    for size, steps in dims[1:]:
        outer, before = merged[-1]
        if all(step == size * inner for step, inner in zip(before, steps)):
            merged[-1] = (outer * size, steps)
        else:
            merged.append((size, steps))
    many = f"a kernel walks through at most {MOST_DIMS} dimensions that do not merge"
    check(len(merged) <= MOST_DIMS, module, f"{many}; .contiguous() merges them")
    return tuple(size for size, _ in merged), tuple(zip(*(steps for _, steps in merged)))


def in_vectors(layout: Layout, width: int) -> bool:
    """Return True if the elements of every tensor come in whole vectors of a width, side by side."""
    whole = layout.aligned and layout.sizes[-1] % width == 0
    for own in layout.strides:
        if own[-1] != 0:
            whole = whole and own[-1] == 1 and all(step % width == 0 for step in own[:-1])
    return whole


def parts(layout: Layout, size: int) -> "Iterator[Layout]":
    """Yield layouts of few enough elements for 32-bit indices: halves along the longest dimension.

    Args:
        layout: of all elements.
        size: the bytes of an element.
    """
    if layout.numel <= MOST_INDICES:
        yield layout
        return
    d = max(range(len(layout.sizes)), key=layout.sizes.__getitem__)
    first = layout.sizes[d] // 2
    for begin, length in ((0, first), (first, layout.sizes[d] - first)):
        sizes = (*layout.sizes[:d], length, *layout.sizes[d + 1 :])
        moved = (p + begin * own[d] * size for p, own in zip(layout.pointers, layout.strides))
        yield from parts(Layout(sizes, layout.strides, tuple(moved)), size)


def packed(layout: Layout, dtype: torch.dtype, vectors: bool, params: "Sequence[float]") -> bytes:
    """Return the bytes of a `Call`, whose device and stream kernels do not read.

    Args:
        layout: of the tensors, the inputs first and then the outputs.
        dtype: of the elements.
        vectors: whether elements come in whole vectors.
        params: the scalars.
    """
    count, rank = len(layout.pointers), len(layout.sizes)
    gap = (0,) * (MOST_DIMS - rank)
    strides = [step for own in layout.strides for step in (*own, *gap)]
    text = f"={count}Qq2iQ2?2xi{MOST_DIMS * (1 + count)}q{len(params)}d"
    head = (*layout.pointers, layout.numel, NUMBERS[dtype], 0, 0, layout.dense, vectors, rank)
    return struct.pack(text, *head, *layout.sizes, *gap, *strides, *params)
