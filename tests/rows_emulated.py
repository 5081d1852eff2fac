"""Kernels of rows: CUDA's text run on the CPU, the threads of a block at once."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from types import ModuleType
from typing import Any

import torch
from emulated import SCALAR_TYPES, SHARED, by_dtype, call_type, run_named, workspace
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


class Reduction(ctypes.Structure):
    """The type of that name in row_total.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("result", "divisor", "partial")),
        ("known", ctypes.c_double),
        ("weights", ctypes.c_int),
    ]


@dataclass(frozen=True)
class Rows:
    """The library of a module's kernels of rows."""

    library: Callable[[torch.dtype], ctypes.CDLL]  # it, for a dtype
    name: str  # in the names of its functions
    inputs: int  # the number of inputs of the forward kernel, without an index
    params: int  # the number of scalars
    row_results: tuple[
        int, ...
    ]  # those that are values of rows, which have a last dimension of size 1 here
    by_channel: bool  # whether neighbours in a row share values of weights
    values_in: Callable[[torch.dtype], torch.dtype]  # the dtype of values of rows beside elements of one
    results: int = 1  # the number of results, which have an incoming gradient each
    saves: int = 0  # numbers of a row that the forward kernel saves for the gradient

    def forward(self, tensors: list[Tensor], params: tuple[float, ...] = ()) -> Tensor:
        """The result of elements of some tensors, whose rows are their last dimension."""
        return self.values(tensors, params)[0]

    def values(self, tensors: list[Tensor], params: tuple[float, ...] = ()) -> list[Tensor]:
        """All results."""
        return self._launched("forward_launch", tensors, self.results, params)

    def backward(self, tensors: list[Tensor], params: tuple[float, ...] = ()) -> list[Tensor]:
        """The gradients of the tensors behind the incoming gradients, the first ones."""
        return self._launched("backward_launch", tensors, self.inputs, params)

    def summed(self, tensors: list[Tensor], params: tuple[float, ...]) -> list[Tensor]:
        """The same where tensors with one row for all have sums over the rows as their gradients."""
        return self._launched("backward_reduce", tensors, self.inputs, params)

    def total(self, tensors: list[Tensor], values: Tensor, known: float, weights: int = 0) -> list[Tensor]:
        """The reduction of the values of rows and its divisor, of a matrix and an index behind it."""
        made = [values.new_full((), float("nan")), torch.full((), float("nan"), dtype=torch.float64)]
        partial = torch.full((2 * 256,), float("nan"), dtype=torch.float64)
        call = call_type(len(tensors) + 1, self.params)()
        call.numel, call.rank, call.dtype = tensors[0].numel(), 2, SCALAR_TYPES[values.dtype]
        call.size[:2] = tensors[0].shape
        for k, view in enumerate([*tensors, values]):
            call.data[k] = view.data_ptr()
            call.stride[k][:2] = view.expand_as(tensors[0]).stride()
        to = Reduction(*(t.data_ptr() for t in (*made, partial)), known, weights)
        function = getattr(self.library(values.dtype), f"{self.name}_forward_total")
        function.restype = ctypes.c_char_p
        assert function(ctypes.byref(call), ctypes.byref(to)) is None
        return made

    def _launched(
        self, function: str, tensors: list[Tensor], count: int, params: tuple[float, ...]
    ) -> list[Tensor]:
        forward, sums = function == "forward_launch", function == "backward_reduce"
        whole = tensors[0] if forward else tensors[self.results]
        likes = tensors[self.results : self.results + count] if sums else [whole] * count
        if forward:
            likes = [whole[..., :1] if k in self.row_results else whole for k in range(count)]
        dtypes = [whole.dtype] * count
        if forward:
            own = self.values_in(whole.dtype)
            dtypes = [own if k in self.row_results else whole.dtype for k in range(count)]
        made = [
            torch.full_like(each, float("nan") if dtype.is_floating_point else -7, dtype=dtype)
            for each, dtype in zip(likes, dtypes, strict=True)
        ]
        first = sorted(range(self.results), key=lambda k: k not in self.row_results)  # as kernels have them
        ordered = made if not forward else [made[k] for k in first]
        views = [
            *(tensors if forward else [*(tensors[k] for k in first), *tensors[len(first) :]]),
            *ordered,
        ]
        call, library = self._call(views, whole, params), self.library(whole.dtype)
        room: list[Tensor | None] = [workspace(library, f"{self.name}_backward", call)] if sums else []
        if forward or not self.saves:
            run_named(library, f"{self.name}_{function}", call, *room)
        else:
            found = self.saved(tensors[self.results :], whole, params)
            run_named(library, f"{self.name}_backward_read", call, *(room or [None]), found)
        return made

    def saved(self, tensors: list[Tensor], whole: Tensor, params: tuple[float, ...]) -> Tensor:
        """Numbers of each row that the forward kernel saves, which stores nothing else then."""
        made = [
            torch.full_like(whole[..., :1] if k in self.row_results else whole, 5)
            for k in range(self.results)
        ]
        found = torch.full((prod(whole.shape[:-1]), self.saves), float("nan"), dtype=torch.float64)
        save = getattr(self.library(whole.dtype), f"{self.name}_forward_save")
        save.restype = ctypes.c_char_p
        call = self._call([*tensors, *made], whole, params)
        assert save(ctypes.byref(call), ctypes.c_void_p(found.data_ptr()), ctypes.c_bool(False)) is None
        assert all((each == 5).all() for each in made)
        return found

    def _call(self, views: list[Tensor], whole: Tensor, params: tuple[float, ...]) -> ctypes.Structure:
        """The argument of a launch."""
        call = call_type(len(views), self.params)()
        call.numel, call.rank = whole.numel(), whole.dim()
        call.dtype, call.device = SCALAR_TYPES[whole.dtype], 0
        call.size[: whole.dim()] = whole.shape
        for k, view in enumerate(views):
            call.data[k] = view.data_ptr()
            of_wide = view.dtype is torch.float32 and whole.element_size() == 2  # in units of elements
            call.stride[k][: whole.dim()] = [s * (1 + of_wide) for s in self._strides(view, whole)]
        call.aligned = all(view.data_ptr() % 16 == 0 for view in views)
        if params:
            call.param[:] = params
        return call

    def _strides(self, t: Tensor, whole: Tensor) -> tuple[int, ...]:
        """Return the strides of a tensor; one of [groups, channels] has last how many share a value."""
        if not self.by_channel or t.dim() == whole.dim():
            return t.expand_as(whole).stride()
        channels = t.shape[-1]
        share = whole.shape[-1] // channels
        return (0, channels, -share if share > 1 else 1)


def emulated(module: ModuleType, swap: tuple[str, str] = ("", "")) -> Rows:
    """The library that g++ makes of a module's CUDA text, a part of which may be another one."""
    kernels: Any = module.KERNELS
    text = kernels.texts().cuda.replace(*swap)
    [name] = set(
        re.findall(r"^FUSEGEN_(?:SAVING_)?(?:BROADCASTING_)?KERNELS\((\w+)\)$", text, re.MULTILINE)
    )
    library = by_dtype(on_cpu(text), "-Wno-sign-compare", shared=ROOM, chip=90)
    inputs = kernels.inputs - kernels.indices
    params = kernels.signature.params
    kind = kernels.row_results, kernels.by_channel, kernels.values_in
    return Rows(library, name, inputs, params, *kind, kernels.results, kernels.saves)
