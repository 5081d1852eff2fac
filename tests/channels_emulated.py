"""Kernels of channels: CUDA's text run on the CPU, the threads of a block at once."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from emulated import SCALAR_TYPES, by_dtype, call_type, run_named, workspace
from rows_emulated import on_cpu
from torch import Tensor


@dataclass(frozen=True)
class Channels:
    """The library of a module's kernels of channels."""

    library: Callable[[torch.dtype], ctypes.CDLL]  # it, for a dtype
    kernels: Any  # what the module has
    name: str  # in the names of its functions

    def forward(self, tensors: list[Tensor], params: tuple[float, ...]) -> list[Tensor]:
        """The result and the moments, of tensors as the operator takes them."""
        count = tensors[0].shape[1] if params[-1] else 0
        return self._launched("forward", tensors, [tensors[0]], [(count, 2)], params)

    def backward(self, tensors: list[Tensor], params: tuple[float, ...]) -> list[Tensor]:
        """The gradients of the tensors behind the first one, which is the incoming gradient."""
        elements, numbers = self.kernels.elements, self.kernels.channels
        own: list[tuple[int, ...]] = [(tensors[0].shape[1],)] * numbers
        return self._launched("backward", tensors, tensors[1 : 1 + elements], own, params)

    def _launched(
        self,
        function: str,
        tensors: list[Tensor],
        likes: list[Tensor],
        numbers: list[tuple[int, ...]],
        params: tuple[float, ...],
    ) -> list[Tensor]:
        made = [torch.full_like(like, float("nan")) for like in likes]
        made += [torch.full(shape, float("nan"), dtype=torch.float64) for shape in numbers]
        views, whole = [*tensors, *made], tensors[0]
        call = call_type(len(views), len(params))()
        call.numel, call.rank, call.dtype, call.device = whole.numel(), 3, SCALAR_TYPES[whole.dtype], 0
        call.size[:3] = (whole.shape[1], whole.shape[0], whole[0, 0].numel())
        call.param[:] = params
        for k, view in enumerate(views):
            call.data[k] = view.data_ptr()
            if view.shape == whole.shape:
                inner = view.stride(-1) if view.dim() > 2 else 1
                call.stride[k][:3] = (view.stride(1), view.stride(0), inner)
        library = self.library(whole.dtype)
        room = workspace(library, f"{self.name}_{function}", call)
        run_named(library, f"{self.name}_{function}_launch", call, room)
        return made


def emulated(module: ModuleType) -> Channels:
    kernels: Any = module.KERNELS
    text = kernels.texts().cuda
    [name] = re.findall(r"^FUSEGEN_CHANNEL_KERNELS\((\w+)\)$", text, re.MULTILINE)
    return Channels(by_dtype(on_cpu(text), "-Wno-sign-compare", chip=90), kernels, name)
