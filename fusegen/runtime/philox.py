"""The random numbers of PyTorch's dropout on CUDA: which of them each element of a mask is decided by.

PyTorch's kernel has so many threads, each with a stream of Philox4x32-10 of its own. A thread takes vectors
of neighbours, and draws four numbers at a time for as many elements.
"""

import functools
import struct
from typing import NamedTuple

import torch

BLOCK = 256  # threads of a block of PyTorch's kernel


class Place(NamedTuple):
    """The place of a mask among the random numbers of a GPU."""

    seed: int
    offset: int  # of a generator: numbers that each thread has drawn
    threads: int
    width: int  # neighbours that a thread takes at a time: 4 or 8


@functools.lru_cache(maxsize=256)
def threshold(p: float) -> int:
    """Return the least random number whose element is dropped with probability p.

    PyTorch compares the uniform number of (0, 1] that float makes of it with 1 - p.
    """
    kept, low, high = _float(1.0 - p), 0, 1 << 32
    while low < high:
        middle = (low + high) // 2
        if _float(_float(middle) * 2.0**-32 + 2.0**-33) < kept:
            low = middle + 1
        else:
            high = middle
    return low


def _float(value: float) -> float:
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


@functools.lru_cache(maxsize=None)
def _most_threads(device: int) -> int:
    of = torch.cuda.get_device_properties(device)
    return int(of.multi_processor_count * (of.max_threads_per_multi_processor // BLOCK) * BLOCK)


def threads(device: int, numel: int) -> int:
    """Return the threads of PyTorch's kernel for so many elements on a GPU."""
    return min(_most_threads(device), -(-numel // BLOCK) * BLOCK)


def drawn_by(numel: int, of: int) -> int:
    """Return by how much a mask of some elements advances the generator, with so many threads."""
    return ((numel - 1) // (of * 4) + 1) * 4


def width_of(numel: int, most: int) -> int:
    """Return how many neighbours a thread takes of so many elements: at most so many, 0 for less than 4."""
    fits = [width for width in (8, 4) if width <= most and numel % width == 0]
    return fits[0] if fits else 0
