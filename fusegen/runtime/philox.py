"""The random numbers of PyTorch's dropout on CUDA: which of them each element of a mask is decided by.

PyTorch's kernel has so many threads, each with a stream of Philox4x32-10 of its own. A thread takes vectors
of neighbours, and draws four numbers at a time for as many elements.
"""

import functools
import struct
from typing import NamedTuple, Tuple

import torch

WORD = (1 << 32) - 1
BLOCK = 256  # threads of a block of PyTorch's kernel


class Place(NamedTuple):
    """The place of a mask among the random numbers of a GPU."""

    seed: int
    offset: int  # of a generator: numbers that each thread has drawn
    threads: int
    width: int  # neighbours that a thread takes at a time: 4 or 8


def philox(key: int, counter: int) -> "Tuple[int, int, int, int]":
    """Return four random numbers of 32 bits, from a key of 64 bits and a counter of 128."""
    a, b, c, d = (counter >> shift & WORD for shift in (0, 32, 64, 96))
    for turn in range(10):
        first, second = a * 0xD2511F53, c * 0xCD9E8D57
        low = key + turn * 0x9E3779B9 & WORD
        high = (key >> 32) + turn * 0xBB67AE85 & WORD
        a, b, c, d = second >> 32 ^ b ^ low, second & WORD, first >> 32 ^ d ^ high, first & WORD
    return a, b, c, d


def number_of(place: Place, element: int) -> int:
    """Return the random number that decides an element of a mask, as cuda/drawn_mask.cuh has it."""
    turn, thread = divmod(element // place.width, place.threads)
    block = place.offset // 4 + turn * (place.width // 4) + element % place.width // 4
    return philox(place.seed, thread << 64 | block)[element % 4]


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
