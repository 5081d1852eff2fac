"""Masks of dropouts on CUDA that a kernel of the runtime draws, with the numbers that PyTorch's would have.

A mask is drawn from its place among the random numbers; the gradient draws it again, so that none is kept.
"""

import contextlib
import functools
from typing import Any, NamedTuple, Tuple

import torch

from .philox import Place, drawn_by, threads, threshold, width_of
from .shared_kernels import SharedKernels, can_load, into, space_of, texts
from .sources import Texts

NAME = "mask"
SPACE = space_of(NAME)  # of the operators
KERNELS = ("drawn_out",)
CHIPS = None  # the kernel runs on all
DTYPES = (torch.float32, torch.float16, torch.bfloat16)  # whose masks PyTorch's kernel draws four at a time
MOST = 2**31 - 1  # elements
WORD = 2**32 - 1
BINDING = """
#define FUSEGEN_SYMBOL "mask"
#include "names.h"
#define FUSEGEN_EXPECTED "expected a mask in float32, float16 or bfloat16"
#define FUSEGEN_DTYPES Dtypes<fusegen::FLOAT32, fusegen::FLOAT16, fusegen::BFLOAT16>
#include "stable_abi_transposed.h"
#include "stable_abi_names.h"
FUSEGEN_REGISTER_INTO(fusegen::names().space, "KEY", mask_drawn, 1, 1, 7)
"""
CUDA = """
#include "cuda/drawn_mask.cuh"
FUSEGEN_DRAWN_MASK(mask_drawn)
"""


class Draw(NamedTuple):
    """A mask that can be drawn again."""

    place: Place
    p: float  # the probability of 0
    shape: torch.Size
    stride: "Tuple[int, ...]"
    dtype: torch.dtype
    device: torch.device

    def mask(self) -> torch.Tensor:
        """Return the mask, drawn again."""
        with torch._C._DisableFuncTorch():
            empty = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
            return fill(empty, self.place, self.p)


class Masks(SharedKernels):
    """The kernel of masks."""

    def __init__(self) -> None:
        scalars = ", ".join(f"float part{k}" for k in range(7))
        taken = f"Tensor mask, {scalars}, Tensor(a!) OUT0"  # a mask, given twice, which is written over
        super().__init__(NAME, texts_of_kernels, into(*KERNELS, taken))
        self.drawn = self.operators.mask_drawn_out.default._op


def texts_of_kernels() -> Texts:
    """Return the sources of the kernel with their headers in their places."""
    return texts(NAME, BINDING, CUDA)


@functools.lru_cache(None)
def kernels() -> Masks:
    """Return the kernel of masks; its operator is defined with the first call."""
    return Masks()


def can_draw(empty: torch.Tensor) -> bool:
    """Return True if the kernel draws a mask, rather than PyTorch.

    PyTorch does for other dtypes and sizes than those of which its kernel is known to draw four numbers for
    four neighbours, in a version that is known by comparison (`widest`); while a CUDA graph is captured,
    each replay of which draws another mask; and without nvcc.
    """
    numel = empty.numel()
    if empty.dtype not in DTYPES or numel % 4 or not 0 < numel <= MOST:
        return False
    return not torch.cuda.is_current_stream_capturing() and widest(empty.device, empty.dtype) > 0


def drawn(empty: torch.Tensor, p: float) -> torch.Tensor:
    """Draw a mask into a tensor for which `can_draw` holds, and advance the generator as PyTorch would.

    Its attribute `fusegen_draw` says how the mask is drawn again.
    """
    place = _taken(empty, widest(empty.device, empty.dtype))
    mask: Any = fill(empty, place, p)
    mask.fusegen_draw = Draw(place, p, empty.shape, empty.stride(), empty.dtype, empty.device)
    return mask


def scalars_of(place: Place, p: float) -> "Tuple[float, ...]":
    """Return what the kernel draws a mask from, as it reads them."""
    seed, block, bits = place.seed, place.offset // 4, place.width.bit_length() - 1
    parts = (seed & WORD, seed >> 32, block & WORD, block >> 32, threshold(p), place.threads, bits)
    return (*map(float, parts),)


def fill(empty: torch.Tensor, place: Place, p: float) -> torch.Tensor:
    """Return a tensor, over which the kernel has written the mask of a place."""
    kernels().drawn(empty, *scalars_of(place, p), empty)
    return empty


def _taken(empty: torch.Tensor, most: int) -> Place:
    """Return the place that PyTorch's next mask would have, behind which the generator then is.

    Args:
        empty: lies as the mask.
        most: neighbours that a thread takes.
    """
    device, numel = empty.device.index, empty.numel()
    generator, of = torch.cuda.default_generators[device], threads(device, numel)
    place = Place(generator.initial_seed() & 2**64 - 1, generator.get_offset(), of, width_of(numel, most))
    generator.set_offset(place.offset + drawn_by(numel, of))
    return place


@functools.lru_cache(None)
def widest(device: torch.device, dtype: torch.dtype) -> int:
    """Return how many neighbours a thread of PyTorch's kernel takes at most; 0 where PyTorch has to draw.

    Versions of PyTorch differ in it. Whole masks of PyTorch's and of the kernel's say which it is, and that
    the two are equal; the generator is left as it was.
    """
    if not can_load(kernels, KERNELS) or not hasattr(torch.Generator, "get_offset"):
        return 0
    generator = torch.cuda.default_generators[device.index]
    with contextlib.suppress(OSError, RuntimeError), contextlib.ExitStack() as stack:
        stack.callback(generator.set_state, generator.get_state())
        fitting = [width for width in (8, 4) if width * dtype.itemsize <= 16]
        return max((width for width in fitting if _agree(device, dtype, width)), default=0)
    return 0


def _agree(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Return True if masks of the kernel's are PyTorch's, whose threads take so many neighbours at most."""
    generator, all_threads = torch.cuda.default_generators[device.index], threads(device.index, MOST)
    for numel in (4, 1024, 12 * all_threads + 8, 17 * all_threads + 4):  # up to several turns of a thread
        empty = torch.empty(numel, dtype=dtype, device=device)
        for p in (0.1, 0.5):
            generator.manual_seed(2**63 + numel)
            generator.set_offset(2**34 - 8)  # behind which a counter takes a second word
            kept, after = torch.native_dropout(empty, p, True)[1], generator.get_offset()
            generator.set_offset(2**34 - 8)
            mask = fill(torch.empty_like(empty), _taken(empty, width), p)
            if generator.get_offset() != after or not torch.equal(mask, kept.to(dtype)):
                return False
    return True
