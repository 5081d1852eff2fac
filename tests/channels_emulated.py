"""Kernels of channels: CUDA's text run on the CPU, the threads of a block at once."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import compiler
import torch
from emulated import FLAGS, SCALAR_TYPES, State, call_type
from rows_emulated import on_cpu
from torch import Tensor


@dataclass(frozen=True)
class Channels:
    """The library of a module's kernels of channels.

    Attributes:
        library: it.
        kernels: what the module has.
        name: in the names of its functions.
    """

    library: ctypes.CDLL
    kernels: Any
    name: str

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
        size = getattr(self.library, f"{self.name}_{function}_workspace")
        size.restype = ctypes.c_int64
        room = torch.full((size(ctypes.byref(call)),), 0xFF, dtype=torch.uint8)
        launch = getattr(self.library, f"{self.name}_{function}_launch")
        launch.restype = ctypes.c_char_p
        error = launch(ctypes.byref(call), ctypes.c_void_p(room.data_ptr()))
        assert error is None, error
        return made


def emulated(module: ModuleType) -> Channels:
    kernels: Any = module.KERNELS
    text = kernels.texts().cuda
    [name] = re.findall(r"^FUSEGEN_CHANNEL_KERNELS\((\w+)\)$", text, re.MULTILINE)
    library = ctypes.CDLL(str(compiler.library(on_cpu(text), ["-O0", *FLAGS, "-Wno-sign-compare"])))
    State.in_dll(library, "emulation").chip = 90
    return Channels(library, kernels, name)
