"""Kernels with a pooling: CUDA's text run on the CPU, block by block."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from emulated import SCALAR_TYPES, SHARED, State, by_dtype, call_type, run_named
from torch import Tensor

HEAD = '#include "cuda_emulation.h"\n#include <algorithm>\n#include <cmath>\n'
LAUNCH = re.compile(r"(\w+)<<<(.+?)>>>\(")


@dataclass(frozen=True)
class Windows:
    """The library of a module's kernels with a pooling."""

    library: Callable[[torch.dtype], ctypes.CDLL]  # it, for a dtype
    kernels: Any  # what the module has
    name: str  # in the names of its functions

    def forward(
        self, tensors: list[Tensor], params: tuple[float, ...] = (), out: Tensor | None = None
    ) -> Tensor:
        """The result for tensors of the two shapes that kernels take, written into a given one."""
        made = torch.empty(self._made(tensors), dtype=tensors[0].dtype) if out is None else out
        return self._launched("forward", tensors, [made], params)[0]

    def blocks(self, dtype: torch.dtype) -> int:
        """The blocks of the last launch."""
        return int(State.in_dll(self.library(dtype), "emulation").blocks)

    def backward(self, tensors: list[Tensor], params: tuple[float, ...] = ()) -> list[Tensor]:
        """The gradients of the tensors behind the first one, which is the incoming gradient."""
        made = [torch.empty(t.shape, dtype=t.dtype) for t in tensors[1:]]
        return self._launched("backward", tensors, made, params)

    def _made(self, tensors: list[Tensor]) -> torch.Size:
        front = next(t for k, t in enumerate(tensors) if self.kernels.is_front(k))
        return torch.Size(self.kernels.sizes(front.shape))

    def _launched(
        self, function: str, tensors: list[Tensor], made: list[Tensor], params: tuple[float, ...]
    ) -> list[Tensor]:
        own = tensors[function == "backward" :]
        whole = next(t for k, t in enumerate(own) if self.kernels.is_front(k))
        for each in made:
            each.fill_(float("nan"))
        views = [*tensors, *made]
        call = call_type(len(views), self.kernels.signature.params)()
        rank = len(self.kernels.window[0])
        lacks, front = 3 - rank, whole.dim() - rank
        call.numel, call.rank = made[0].numel() if function == "forward" else whole.numel(), front + 3
        call.dtype, call.device = SCALAR_TYPES[whole.dtype], 0
        call.size[:front] = whole.shape[:front]
        call.size[front : front + 3] = (*[1] * lacks, *whole.shape[front:])
        call.size[front + 3 : front + 6] = (*[1] * lacks, *self.kernels.sizes(whole.shape)[front:])
        for k, view in enumerate(views):
            call.data[k] = view.data_ptr()
            call.stride[k][: front + 3] = (*view.stride()[:front], *[0] * lacks, *view.stride()[front:])
        if params:
            call.param[:] = params
        run_named(self.library(whole.dtype), f"{self.name}_{function}_launch", call)
        return made


def emulated(module: ModuleType) -> Windows:
    return emulated_kernels(module.KERNELS)


def emulated_kernels(kernels: Any) -> Windows:
    """The library of some kernels, of a choice of numbers."""
    text = HEAD + kernels.texts().cuda
    [name] = re.findall(r"^FUSEGEN_WINDOWS\((\w+)\)$", text, re.MULTILINE)
    text = SHARED.sub(r"\1* const \2 = shared<\1>();", text)
    text = LAUNCH.sub(r"emulate(\1, \2, ", text)
    return Windows(by_dtype(text), kernels, name)
