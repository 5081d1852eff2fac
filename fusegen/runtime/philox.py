"""The random numbers of PyTorch's dropout on CUDA: which of them each element of a mask is decided by.

PyTorch's kernel has so many threads, each with a stream of Philox4x32-10 of its own. A thread takes vectors
of neighbours, and draws four numbers at a time for as many elements.
"""

import functools
import struct
from typing import Any, List, NamedTuple, Optional, Tuple

import torch

WORD = (1 << 32) - 1
BLOCK = 256  # threads of a block of PyTorch's kernel
HALVES = (torch.float16, torch.bfloat16)
SAMPLES = 24  # of neighbours, at each place where masks are compared


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
    """Return the random number that decides an element of a mask."""
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


@functools.lru_cache(maxsize=None)
def widest(device: int, dtype: torch.dtype) -> int:
    """Return how many neighbours a thread of PyTorch's kernel takes at most; 0 where masks lie otherwise.

    Versions of PyTorch differ in it. A few elements of masks say which it is, and that the rest of this
    file holds; the generator is left as it was.
    """
    if torch.version.hip or not hasattr(torch.Generator, "get_offset"):
        return 0
    generator = torch.cuda.default_generators[device]
    state = generator.get_state()
    found = [width for width in (8, 4) if dtype in HALVES or width == 4]
    for numel in (1024, 12 * _most_threads(device) + 8, 9 * _most_threads(device) + 4):
        of = threads(device, numel)
        for width in [*found]:
            at = Place(generator.initial_seed() & 2**64 - 1, generator.get_offset(), of, width)
            kept = torch.native_dropout(torch.empty(numel, dtype=dtype, device=f"cuda:{device}"), 0.3, True)
            advanced = generator.get_offset() - at.offset == drawn_by(numel, of)
            narrowed = at._replace(width=width_of(numel, width))
            if not (advanced and _agree(kept[1], narrowed, threshold(0.3))):
                found.remove(width)
    generator.set_state(state)
    return found[0] if found else 0


def _agree(kept: torch.Tensor, place: Place, below: int) -> bool:
    """Return True if samples of a mask are where they are expected."""
    numel, whole = kept.numel(), place.threads * place.width
    starts = (0, 4000, whole - SAMPLES // 2, numel // 2, numel - SAMPLES)
    indices = sorted({i for start in starts for i in range(start, start + SAMPLES) if 0 <= i < numel})
    values: "List[bool]" = kept[torch.tensor(indices, device=kept.device)].tolist()
    return all((number_of(place, i) < below) == value for i, value in zip(indices, values))


def width_of(numel: int, most: int) -> int:
    """Return how many neighbours a thread takes of so many elements: at most so many, 0 for less than 4."""
    fits = [width for width in (8, 4) if width <= most and numel % width == 0]
    return fits[0] if fits else 0


def take(device: int, dtype: torch.dtype, numel: int) -> "Optional[Place]":
    """Draw a mask: return its place, and advance the generator as PyTorch's kernel does; None if unknown.

    Args:
        device: the index of the GPU.
        dtype: of what is dropped.
        numel: its elements.
    """
    width = width_of(numel, widest(device, dtype))
    if not width:
        return None
    generator, of = torch.cuda.default_generators[device], threads(device, numel)
    place = Place(generator.initial_seed() & 2**64 - 1, generator.get_offset(), of, width)
    generator.set_offset(place.offset + drawn_by(numel, of))
    return place


def again(place: Place, empty: torch.Tensor, p: float) -> torch.Tensor:
    """Return the mask of a place, which PyTorch's kernel writes; the generator stays as it is."""
    generator: Any = torch.cuda.default_generators[empty.device.index]
    state = generator.get_state()
    generator.manual_seed(place.seed)
    generator.set_offset(place.offset)
    kept: torch.Tensor = torch.native_dropout(empty, p, True)[1]
    generator.set_state(state)
    return kept
