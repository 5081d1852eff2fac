"""Rotary embeddings, q * cos + rotate_half(q) * sin, in one kernel a tensor.

The forward of an attention calls a function for them, which is found in its globals by its arguments and by
what it computes. The function stays as it is: the forward of a patched layer calls the kernel in its place.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from fusegen.models.patch.forwards import Parts, helped, swapped
from fusegen.models.patch.library import module
from fusegen.models.reader.row_gains import WRITTEN_OUT, clause, gains, modes_of
from fusegen.runtime.calls import is_batch, transformed

NAME = "rotary"
ARGUMENTS = ["q", "k", "cos", "sin"]  # of the function; others behind them have defaults
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SHAPES = ((2, 3, 5, 8), (2, 1, 5, 8), (1, 5, 8), (1, 5, 8))  # of what the function is tried on
CLOSE: Any = {"rtol": 1e-12, "atol": 1e-12}


@dataclass(frozen=True)
class Rotated:
    """A function of queries, keys and angles that a forward calls.

    Attributes:
        name: in the globals of the forward.
        function: it.
    """

    name: str
    function: Callable[..., Any]
    module = f"results.{NAME}"  # of the library
    acts = ()

    def when(self, holder: nn.Module) -> str:
        """Return in which mode alone the kernel runs, a clause; empty where that is each."""
        return clause(_modes(holder))

    def call(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """Return a function of the function that the forward would call, and of its arguments."""

        def rotated(function: Any, q: Any, k: Any, cos: Any, sin: Any) -> Any:
            if function is not self.function or is_compiling() or transformed() or not _fit(cos, sin):
                return function(q, k, cos, sin)
            if not _takes(q, cos) or not _takes(k, cos) or not (_gains(q) or _gains(k)):
                return function(q, k, cos, sin)
            angles = cos.unsqueeze(1), sin.unsqueeze(1)
            return _run(q, *angles), _run(k, *angles)

        return rotated


def _fit(cos: Any, sin: Any) -> bool:
    """Tell if a kernel takes the cosines and sines, of which it has no gradient."""
    for each in (cos, sin):
        if each.__class__ is not Tensor or each.dim() != 3 or each.shape[-1] % 2:
            return False
        if each.requires_grad and torch.is_grad_enabled():
            return False
    return bool(cos.shape == sin.shape and cos.dtype == sin.dtype and cos.dtype in DTYPES)


def _takes(x: Any, cos: Tensor) -> bool:
    """Tell if the kernel computes what the function does of a tensor."""
    if x.__class__ is not Tensor or x.dim() != 4 or x.dtype != cos.dtype or x.device != cos.device:
        return False
    batch, length, size = cos.shape
    return bool(x.shape[2:] == (length, size) and batch in (1, x.shape[0]) and x.numel())


def _gains(x: Tensor) -> bool:
    """Tell if the kernel is faster for a tensor; keys of fewer heads than the queries follow these."""
    return gains(NAME, WRITTEN_OUT, x.shape[-1], x)


def _run(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    is_recorded = torch.is_grad_enabled() and x.requires_grad
    turned: Callable[..., Tensor] = _Turned.apply if is_recorded else _Turned.forward
    return turned(x, cos, sin, 0)


class _Turned(torch.autograd.Function):
    """The embedding of a tensor; its gradient is the same kernel, of the halves in the other order."""

    @staticmethod
    def forward(x: Tensor, cos: Tensor, sin: Tensor, first: int) -> Tensor:
        """Have the kernel write both halves of the result, of which it takes one as the first."""
        made = torch.empty_like(x)
        halves = made.chunk(2, -1)
        _kernels().forward_out(*_pairs(x, cos, sin, first), halves[first], halves[1 - first])
        return made

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep the angles."""
        _, cos, sin, ctx.first = inputs
        ctx.save_for_backward(cos, sin)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Turn the gradient back."""
        [grad], (cos, sin) = grads, ctx.saved_tensors
        turn = _by_operations if is_batch(grad) or transformed() else _Turned.apply
        return turn(grad, cos, sin, 1 - ctx.first), None, None, None


def _pairs(x: Tensor, cos: Tensor, sin: Tensor, first: int) -> tuple[Tensor, ...]:
    """Return the arguments of the kernel: of the tensor, the cosines and the sines, the halves."""
    halves, of_cos, of_sin = (each.chunk(2, -1) for each in (x, cos, sin))
    second = 1 - first
    return halves[first], halves[second], of_cos[first], of_sin[0], of_cos[second], of_sin[1]


def _by_operations(x: Tensor, cos: Tensor, sin: Tensor, first: int) -> Tensor:
    made = _kernels().eager(*_pairs(x, cos, sin, first))
    return torch.cat((made[first], made[1 - first]), -1)


@functools.cache
def _kernels() -> Any:
    return module(Rotated.module).KERNELS


def _modes(holder: nn.Module) -> set[bool]:
    """Return in which modes the kernel is faster for a layer: with gradients or not."""
    first = next(holder.parameters(), torch.empty(0))
    known = first.dtype in DTYPES
    return modes_of(NAME, WRITTEN_OUT, first.device.type, first.dtype, None) if known else set()


def choices(holder: nn.Module) -> Callable[[str], Rotated | None] | None:
    """Return what gives the kernel of a function that a forward calls by a name; None for no such one."""
    forward: Any = inspect.unwrap(type(holder).forward)
    if not isinstance(forward, FunctionType) or not _modes(holder):
        return None
    every = ((name, forward.__globals__.get(name)) for name in forward.__code__.co_names)
    found = {name: Rotated(name, each) for name, each in every if each and is_rotary(each)}
    return found.get if found else None


def rewrite(tree: ast.FunctionDef, scope: Any, choose: Callable[[str], Rotated | None]) -> Parts:
    """Have a forward call the helper in the place of functions of four arguments, and yield these."""

    def match(node: ast.Call) -> tuple[Rotated, ast.expr] | None:
        match node:
            case ast.Call(func=ast.Name(id=name), args=[_, _, _, _], keywords=[]) if not any(
                isinstance(each, ast.Starred) for each in node.args
            ):
                part = choose(name)
                return None if part is None else (part, helped(name, [node.func, *node.args]))
        return None

    return swapped(tree, match)


def is_rotary(function: Any) -> bool:
    """Tell if a function has the arguments of a rotary embedding, and computes it."""
    if not isinstance(function, FunctionType):
        return False
    every = [*inspect.signature(function).parameters.values()]
    own, others = every[: len(ARGUMENTS)], every[len(ARGUMENTS) :]
    fits = [each.name for each in own] == ARGUMENTS and all(
        each.default is not each.empty for each in others
    )
    return fits and _is_same(function)


@functools.cache
def _is_same(function: Callable[..., Any]) -> bool:
    """Tell if a function turns queries and keys, and returns their dtypes and strides."""
    draw = torch.Generator("cpu").manual_seed(0)
    with torch.inference_mode(mode=False), torch.no_grad():
        given = [torch.randn(each, generator=draw, dtype=torch.float64, device="cpu") for each in SHAPES]
        for dtype in (torch.float64, *DTYPES):
            q, k, cos, sin = (each.to(dtype) for each in given)
            laid = q.mT.contiguous().mT
            try:
                made = function(laid, k, cos, sin)
            except (RuntimeError, TypeError, ValueError, IndexError):  # of other tensors than these
                return False
            if not isinstance(made, tuple) or [each.dtype for each in made] != [dtype] * 2:
                return False
            right = [_by_operations(x, cos.unsqueeze(1), sin.unsqueeze(1), 0) for x in (laid, k)]
            if dtype is torch.float64 and not all(
                a.shape == b.shape and torch.allclose(a, b, **CLOSE)
                for a, b in zip(made, right, strict=True)
            ):
                return False
    return True
