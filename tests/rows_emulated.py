"""Kernels of rows: CUDA's text run on the CPU, the threads of a block at once."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import compiler
import torch
from emulated import FLAGS, SCALAR_TYPES, SHARED, State, call_type
from torch import Tensor

HEAD = '#include "rows.h"\n#include <algorithm>\n#include <atomic>\n#include <cassert>\n'
LAUNCH = re.compile(r"(\w+(?:<[\w, ]+>)?)<<<(.+?)>>>\(")
PREFETCH = re.compile(r'asm volatile\("prefetch[^;]*;"[^;]*;')
COPY = re.compile(r'asm volatile\("cp\.async\.cg[^;]*;[^;]*;')
WAIT = re.compile(r'asm volatile\("cp\.async\.wait_all;"[^;]*;')
ROOM = 96 << 10  # bytes of shared memory that a block may have


def on_cpu(text: str) -> str:
    """A text whose launches and shared memory are of the CPU, without the instructions of the chip."""
    text = SHARED.sub(r"\1* const \2 = shared<\1>();", HEAD + text)
    text = WAIT.sub("", COPY.sub("memcpy(to, from, 16);", PREFETCH.sub("(void)0;", text)))
    return LAUNCH.sub(r"emulate_together(\1, \2, ", text)


@dataclass(frozen=True)
class Rows:
    """The library of a module's kernels of rows.

    Attributes:
        library: it.
        name: in the names of its functions.
        inputs: the number of inputs of the forward kernel, without an index.
        params: the number of scalars.
        once_a_row: whether a result is a value of a row, which has a last dimension of size 1 here.
        by_channel: whether neighbours in a row share values of weights.
    """

    library: ctypes.CDLL
    name: str
    inputs: int
    params: int
    once_a_row: bool
    by_channel: bool

    def forward(self, tensors: list[Tensor], params: tuple[float, ...] = ()) -> Tensor:
        """The result of elements of some tensors, whose rows are their last dimension."""
        return self._launched("forward_launch", tensors, 1, params)[0]

    def backward(self, tensors: list[Tensor], params: tuple[float, ...] = ()) -> list[Tensor]:
        """The gradients of the tensors behind the first one, which is the incoming gradient."""
        return self._launched("backward_launch", tensors, self.inputs, params)

    def summed(self, tensors: list[Tensor], params: tuple[float, ...]) -> list[Tensor]:
        """The same where tensors with one row for all have sums over the rows as their gradients."""
        return self._launched("backward_reduce", tensors, self.inputs, params)

    def _launched(
        self, function: str, tensors: list[Tensor], count: int, params: tuple[float, ...]
    ) -> list[Tensor]:
        forward, sums = function == "forward_launch", function == "backward_reduce"
        whole = tensors[0] if forward else tensors[1]
        likes = tensors[1 : 1 + count] if sums else [whole] * count
        if forward and self.once_a_row:
            likes = [whole[..., :1]]
        made = [torch.full_like(each, float("nan")) for each in likes]
        views = [*tensors, *made]
        call = call_type(len(views), self.params)()
        call.numel, call.rank, call.dtype, call.device = (
            whole.numel(),
            whole.dim(),
            SCALAR_TYPES[whole.dtype],
            0,
        )
        call.size[: whole.dim()] = whole.shape
        for k, view in enumerate(views):
            call.data[k] = view.data_ptr()
            call.stride[k][: whole.dim()] = self._strides(view, whole)
        if params:
            call.param[:] = params
        launch = getattr(self.library, f"{self.name}_{function}")
        launch.restype = ctypes.c_char_p
        room = [self._workspace(call)] if sums else []
        error = launch(ctypes.byref(call), *(ctypes.c_void_p(each.data_ptr()) for each in room))
        assert error is None, error
        return made

    def _strides(self, t: Tensor, whole: Tensor) -> tuple[int, ...]:
        """Return the strides of a tensor; one of [groups, channels] has last how many share a value."""
        if not self.by_channel or t.dim() == whole.dim():
            return t.expand_as(whole).stride()
        channels = t.shape[-1]
        share = whole.shape[-1] // channels
        return (0, channels, -share if share > 1 else 1)

    def _workspace(self, call: ctypes.Structure) -> Tensor:
        size = getattr(self.library, f"{self.name}_backward_workspace")
        size.restype = ctypes.c_int64
        return torch.empty(size(ctypes.byref(call)), dtype=torch.uint8)


def emulated(module: ModuleType) -> Rows:
    """The library that g++ makes of a module's CUDA text."""
    kernels: Any = module.KERNELS
    text = kernels.texts().cuda
    [name] = set(re.findall(r"^FUSEGEN_(?:BROADCASTING_)?KERNELS\((\w+)\)$", text, re.MULTILINE))
    library = ctypes.CDLL(str(compiler.library(on_cpu(text), ["-O1", *FLAGS, "-Wno-sign-compare"])))
    state = State.in_dll(library, "emulation")
    state.shared, state.chip = ROOM, 90
    inputs = kernels.inputs - kernels.indices
    params = kernels.signature.params
    return Rows(library, name, inputs, params, kernels.once_a_row, kernels.by_channel)
