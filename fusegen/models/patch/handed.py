"""Sums that a layer ends with, as one kernel with the norm that the next layer begins with.

The forward of the first layer calls a helper for its sum. That computes the norm, too, and puts it into the
norm's slot, from where the norm's own forward takes it. That is done under torch.no_grad alone: a sum that
leaves its layer may be asked for its gradient, which lacks that of the norm where one operation makes both.

The forwards around the layer say which norm is next. They may be wrong, of layers that are called in
another order: then the norm takes no value (slots).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from fusegen.models.patch.derived import bare
from fusegen.models.patch.forwards import Parts, at, called, helped, itself, source_of
from fusegen.models.patch.slots import SLOT, Slot
from fusegen.models.patch.sums import Added, norm_of
from fusegen.models.reader.row_gains import HANDED as LEAST
from fusegen.runtime.calls import transformed

NEXT = "_fusegen_next"  # the attribute of a layer that holds the norm behind it, in a tuple, as no child
KEY = "return"  # of the helper, which no layer is named
ROWS = (nn.ModuleList, nn.Sequential)  # whose children are called in their order
METHODS = ("forward", "forward_features")  # which call children; timm's models have the second one
UNKNOWN = ""


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


def norm_behind(model: nn.Module, path: str) -> str:
    """Return the path of the childless layer that is called with what a layer returns; empty for none."""
    while path:
        outer, _, name = path.rpartition(".")
        following = _following(model.get_submodule(outer), name)
        if following is not None:
            return _first(model, f"{outer}.{following}".lstrip(".")) if following else ""
        path = outer
    return ""


def _following(holder: nn.Module, name: str) -> str | None:
    """Return the child that is called after one; None where the holder returns what that returns."""
    if isinstance(holder, ROWS):
        names = _names(holder)
        return next(iter(names[names.index(name) + 1 :]), None)
    for tree in (source_of(bare(type(holder)), method) for method in METHODS):
        calls = [] if tree is None else [*_calls(tree, holder)]
        own = [call for child, call in calls if child == name]
        last = max((_end(each) for each in own or _mentions(tree, name)), default=None)
        if last is not None:
            return next((child for child, call in calls if child != name and _end(call) > last), None)
    return UNKNOWN


def _first(model: nn.Module, path: str) -> str:
    """Return the path of the childless layer that a layer calls first, with its own argument."""
    layer = model.get_submodule(path)
    names = _names(layer)
    if not names:
        return path
    if isinstance(layer, nn.Sequential):
        return _first(model, f"{path}.{names[0]}")
    tree = source_of(bare(type(layer)))
    _, call = ("", None) if tree is None else next(_calls(tree, layer), ("", None))
    if tree is None or call is None:
        return ""
    match called(call, itself(tree)):
        case (name, ast.Name(id=given)) if given == _argument(tree):
            return "" if _is_changed(tree, given, call) else _first(model, f"{path}.{name}")
    return ""


def _names(holder: nn.Module) -> list[str]:
    return [name for name, child in holder._modules.items() if child is not None]


def _calls(tree: ast.FunctionDef, holder: nn.Module) -> Iterator[tuple[str, ast.Call]]:
    """Yield the names of a layer's children and their calls, in the order in which these return."""
    owner = itself(tree)
    for node in sorted((each for each in ast.walk(tree) if isinstance(each, ast.Call)), key=_end):
        match node.func:
            case ast.Attribute(value=ast.Name(id=of), attr=name) if of == owner:
                if name in _names(holder):
                    yield name, node


def _mentions(tree: ast.FunctionDef | None, name: str) -> list[ast.AST]:
    nodes = [] if tree is None else ast.walk(tree)
    return [each for each in nodes if isinstance(each, ast.Attribute) and each.attr == name]


def _argument(tree: ast.FunctionDef) -> str:
    """Return the name of the first argument behind the layer itself."""
    names = [each.arg for each in (*tree.args.posonlyargs, *tree.args.args)]
    return names[1] if len(names) > 1 else ""


def _is_changed(tree: ast.FunctionDef, name: str, call: ast.Call) -> bool:
    """Tell if a variable gets another value in front of a call."""
    writes = (
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr)
        and any(
            isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
            for node in ast.walk(each)
        )
    )
    return any(_end(each) < (call.lineno, call.col_offset) for each in writes)


def _end(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0)
