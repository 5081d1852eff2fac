"""Copies in channels_last by a kernel of the runtime, which may round floats to TF32."""

import contextlib
import enum
import functools
from typing import Any

import torch

from .calls import PLAIN, differentiable, transformed
from .holders import is_under_mode
from .shared_kernels import SharedKernels, can_load, into, space_of, texts
from .sources import Texts

LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}  # by the number of dimensions
LEAST_TRANSPOSED = 16  # channels, and pixels, from which the kernel is faster than PyTorch's copy
NAME = "layout"
SPACE = space_of(NAME)  # of the operators
KERNELS = ("transposed_out",)
CHIPS = None  # the kernel runs on all
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
BINDING = """
#define FUSEGEN_SYMBOL "layout"
#include "names.h"
#define FUSEGEN_EXPECTED "expected float32, float16, bfloat16 or float64"
#define FUSEGEN_DTYPES AllDtypes
#include "stable_abi_transposed.h"
#include "stable_abi_names.h"
FUSEGEN_REGISTER_INTO(fusegen::names().space, "KEY", layout_transposed, 1, 1, 1)
"""
CUDA = """
#include "cuda/elements.cuh"
#include "cuda/channels_last.cuh"
FUSEGEN_TRANSPOSED(layout)
"""


class Laid(enum.Enum):
    """A choice for operands of a convolution: as they are, in channels_last, or rounded to TF32, too."""

    AS_IT_IS = 0
    CHANNELS_LAST = 1
    ROUNDED = 2


class Copies(SharedKernels):
    """The kernel of copies."""

    def __init__(self) -> None:
        taken = "Tensor x, float rounds, Tensor(a!) OUT0"
        super().__init__(NAME, texts_of_kernels, into(*KERNELS, taken))
        self.transposed = self.operators.layout_transposed_out.default._op


def texts_of_kernels() -> Texts:
    """Return the sources of the kernel with their headers in their places."""
    return texts(NAME, BINDING, CUDA)


@functools.lru_cache(None)
def kernels() -> Copies:
    """Return the kernel of copies; its operator is defined with the first call."""
    return Copies()


@functools.lru_cache(None)
def has_kernel() -> bool:
    """Return True if the kernel can be built, or is shipped."""
    return _has_text() and can_load(kernels, KERNELS)


def _has_text() -> bool:
    """Return True if the headers are there: a standalone file without a convolution has them not."""
    with contextlib.suppress(KeyError, FileNotFoundError):
        return bool(texts_of_kernels())
    return False


def laid(t: torch.Tensor, chosen: Laid) -> torch.Tensor:
    """Return a tensor channels last, rounded if that is chosen; its gradient is the incoming one."""
    by_kernel = t.__class__ in PLAIN and transposes(t) and has_kernel()
    if chosen is not Laid.ROUNDED and not by_kernel:
        return t.contiguous(memory_format=LAYOUTS[t.dim()])
    return Copied.apply(t, chosen) if differentiable(t) else copied(t, chosen)


def transposes(x: torch.Tensor) -> bool:
    """Return True if the kernel lays a tensor channels last faster than PyTorch does."""
    known = x.is_cuda and x.dtype in DTYPES and not x.is_neg()
    if not known or transformed() or is_under_mode() or not x.is_contiguous() or x.dim() not in LAYOUTS:
        return False
    channels = x.shape[1]
    pixels = x.numel() // max(1, x.shape[0] * channels)
    return x.numel() > 0 and min(channels, pixels) >= LEAST_TRANSPOSED


def copied(t: torch.Tensor, chosen: Laid) -> torch.Tensor:
    """Return a copy that the kernel has made."""
    made = torch.empty_like(t, memory_format=LAYOUTS[t.dim()])
    kernels().transposed(t, float(chosen is Laid.ROUNDED), made)
    return made


class Copied(torch.autograd.Function):
    """A copy, in the gradient of which rounding has no part, as in that of a convolution in TF32."""

    @staticmethod
    def forward(ctx: Any, t: torch.Tensor, chosen: Laid) -> torch.Tensor:
        """Return the copy."""
        return copied(t, chosen)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """Return the incoming gradient."""
        return grads[0], None
