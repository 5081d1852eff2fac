"""Sums that a layer ends with, as one kernel with the norm that the next layer begins with.

The forward of the first layer calls a helper for its sum. That computes the norm, too, and puts it into the
norm's slot, from where the norm's own forward takes it. That is done under torch.no_grad alone: a sum that
leaves its layer may be asked for its gradient, which lacks that of the norm where one operation makes both.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from fusegen.models.patch.forwards import Parts, at, helped, itself, source_of
from fusegen.models.patch.next_norms import norm_behind
from fusegen.models.patch.slots import SLOT, Slot
from fusegen.models.patch.sums import Added, norm_of
from fusegen.models.reader.row_gains import HANDED as LEAST
from fusegen.runtime.calls import transformed

NEXT = "_fusegen_next"  # the attribute of a layer that holds the norm behind it, in a tuple, as no child
KEY = "return"  # of the helper, which no layer is named


@dataclass(frozen=True)
class Handed:
    """The sum that a layer ends with, which is computed with the norm behind it."""

    added: Added
    name = KEY
    acts = ()

    @property
    def module(self) -> str:
        """The module of the library."""
        return self.added.module

    def when(self, holder: nn.Module) -> str:
        """Return in which mode alone the kernel runs, a clause."""
        return "under torch.no_grad"

    def call(self) -> Callable[..., Any]:
        """Return a function of a layer and two tensors that returns their sum."""
        of_rows, forward = self.added.layer, self.added.kind.forward
        run, along = self.added.function(), dict(of_rows.reading.along)

        def handed(layer: Any, x: Any, residual: Any) -> Any:
            # 1. Tensors of inference mode do not count the writes to them.
            if is_compiling() or torch.is_grad_enabled() or torch.is_inference_mode_enabled():
                return x + residual
            if x.__class__ is not Tensor or x.numel() < LEAST:
                return x + residual
            # 2. Find the norm behind the layer, which nobody watches and which takes values.
            norm: nn.Module | None = vars(layer).get(NEXT, (None,))[0]
            slot: Slot | None = None if norm is None else vars(norm).get(SLOT)
            if norm is None or slot is None or not self.added.is_still(norm, forward):
                return x + residual
            if transformed() or not of_rows.takes(norm, x, along, residual):
                return x + residual
            weights = of_rows.weights(norm)
            if not slot.is_wanted(weights):
                return x + residual
            # 3. Compute both.
            normed, total = run(norm, x, residual)
            slot.put(total, normed, weights)
            return total

        return handed


@dataclass(frozen=True)
class Link:
    """A layer that ends with a sum, and the norm behind it."""

    handed: Handed
    text: str  # the norm of the sum, as code
    norm: nn.Module

    def join(self, layer: nn.Module) -> None:
        """Have a layer hand the norm its values."""
        vars(layer)[NEXT] = (self.norm,)
        vars(self.norm).setdefault(SLOT, Slot())


def link_of(model: nn.Module, path: str) -> Link | None:
    """Return the norm behind a layer that ends with a sum, if a kernel is faster for both."""
    layer = model.get_submodule(path)
    tree = source_of(type(layer)) if layer._modules and "forward" not in vars(layer) else None
    total = None if tree is None else _last_sum(tree)
    behind = "" if total is None else norm_behind(model, path)
    norm = model.get_submodule(behind) if behind else None
    added = None if norm is None else norm_of(KEY, norm)
    if total is None or norm is None or added is None or False not in added.modes(norm):
        return None
    return Link(Handed(added), f"{behind}({ast.unparse(total.value)})", norm)


def part(layer: nn.Module) -> None:
    """Have a layer hand nothing any more, and a norm take nothing."""
    for name in (NEXT, SLOT):
        vars(layer).pop(name, None)


def rewrite(tree: ast.FunctionDef, scope: Any, choose: Callable[[str], Handed | None]) -> Parts:
    """Have a forward call the helper for the sum that it ends with, and yield that."""
    statement, part = _last_sum(tree), choose(KEY)
    if statement is not None and part is not None:
        add, owner = statement.value, ast.Name(itself(tree), ast.Load())
        statement.value = at(helped(KEY, [owner, add.left, add.right]), add)
        yield part, ""


def _last_sum(tree: ast.FunctionDef) -> Any:
    """Return the statement that adds what a forward returns; None where it does not end with one."""
    read, written = set[str](), set[str]()
    for statement in reversed(tree.body):
        match statement:
            case ast.Return(value=ast.BinOp(op=ast.Add())):
                return statement
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(op=ast.Add())) if (
                name in read - written
            ):
                return statement
        nodes = [*ast.walk(statement)]
        if any(isinstance(each, ast.Call) for each in nodes):  # which may make another value of the sum
            return None
        for node in nodes:
            if isinstance(node, ast.Name):
                (read if isinstance(node.ctx, ast.Load) else written).add(node.id)
    return None
