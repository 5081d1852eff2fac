"""Norms of rows behind a residual, `norm(x + residual)`, that are one kernel with the sum.

They are found in the code of the forward that adds and calls the norm, and run where nobody watches the
norm and its kernel is faster. All else runs as it is, in the order of the forward.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from fusegen.models.patch.derived import bare, has_hooks
from fusegen.models.patch.forwards import (
    Parts,
    Swap,
    at,
    blocks,
    called,
    first_call,
    helped,
    itself,
    swapped,
)
from fusegen.models.patch.library import module, row_names
from fusegen.models.patch.row_layers import RowLayer, condition, row_layer_of
from fusegen.models.reader.layer_calls import twin

MADE = "fusegen_normed_{}"


@dataclass(frozen=True)
class Added:
    """A norm with the sum in front of it, by the name of the norm in its holder."""

    name: str
    kind: type[nn.Module]  # the class of the norm
    layer: RowLayer
    acts = ()

    @property
    def module(self) -> str:
        """The module of the library."""
        return f"rows.{self.layer.added}"

    def when(self, holder: nn.Module) -> str:
        """Return in which mode alone the kernel runs, a clause; empty where that is each."""
        return condition(self.layer, *_where(getattr(holder, self.name)), self.layer.added)

    def modes(self, norm: nn.Module) -> set[bool]:
        """Return in which modes the kernel is faster than that of the norm, and this than the norm."""
        where = _where(norm)
        return self.layer.modes(*where, self.layer.added) & self.layer.modes(*where)

    def function(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """Return the kernel's function of a norm and two tensors."""
        own, function = self.layer.reading.function, getattr(module(self.module), self.layer.added)

        def run(norm: nn.Module, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
            result: tuple[Tensor, Tensor] = function(x, residual, *self.layer.weights(norm), *own.numbers)
            return result

        return run

    def call(self) -> Callable[..., tuple[Any, Any]]:
        """Return a function of the norm, or None, and two tensors: the norm of the sum, and the sum."""
        forward: Any = self.kind.forward
        run, along = self.function(), dict(self.layer.reading.along)

        def added(norm: Any, x: Any, residual: Any) -> tuple[Any, Any]:
            if norm is None or is_compiling() or not self.is_still(norm, forward):
                return _apart(norm, x, residual)
            takes = self.layer.takes(norm, x, along, residual)
            return run(norm, x, residual) if takes else _apart(norm, x, residual)

        return added

    def is_still(self, norm: nn.Module, forward: Callable[..., Any]) -> bool:
        """Tell if a layer is such a norm, and nobody watches it."""
        if bare(type(norm)) is not self.kind or self.kind.forward is not forward:
            return False
        return "forward" not in vars(norm) and not has_hooks(norm)


def _apart(norm: Any, x: Any, residual: Any) -> tuple[Any, Any]:
    total = x + residual
    return None if norm is None else norm(total), total


def norm_of(name: str, layer: nn.Module) -> Added | None:
    """Return a layer as a norm that has a kernel with a sum."""
    own = twin(layer)
    own.__class__ = bare(type(layer))
    found = row_layer_of(own)
    if not isinstance(found, RowLayer) or found.added not in row_names():
        return None
    return Added(name, type(own), found) if found.modes(*_where(layer), found.added) else None


def _where(norm: nn.Module) -> tuple[str, torch.dtype]:
    """Return the device and the dtype of a norm with parameters."""
    first = next(norm.parameters())
    return first.device.type, first.dtype


def choices(holder: nn.Module) -> Callable[[str], Added | None] | None:
    """Return what gives the kernel of a norm in a layer by its name; None where that has no norm."""
    norms = {name: found for name, layer in holder.named_children() if (found := norm_of(name, layer))}
    return norms.get if norms else None


def rewrite(tree: ast.FunctionDef, scope: Any, choose: Callable[[str], Added | None]) -> Parts:
    """Have a forward call the helper for norms of sums, and yield these."""
    owner, numbers = itself(tree), itertools.count(1)  # of calls: a norm may be called of several sums
    for block in blocks(tree):
        for place, statement in enumerate(block):
            spot = _behind(block, place, owner)
            part = spot and choose(spot[0])
            if spot and part:
                yield part, f"{spot[0]}({ast.unparse(statement.value)})"
                _join(block, place, *spot, number=next(numbers))

    def inside(node: ast.Call) -> tuple[Added, ast.expr] | None:
        match called(node, owner):
            case (name, ast.BinOp(op=ast.Add()) as add) if part := choose(name):
                both = helped(name, [node.func, add.left, add.right])
                return part, ast.Subscript(both, ast.Constant(0), ast.Load())
        return None

    yield from swapped(tree, inside)


Spot = tuple[str, int, list[ast.expr]]  # the norm, the statement that calls it, the tests between


def _behind(block: list[Any], place: int, owner: str) -> Spot | None:
    """Return the norm that is called of what a statement adds."""
    match block[place]:
        case ast.Assign(targets=[ast.Name(id=total)], value=ast.BinOp(op=ast.Add())):
            tests, written = list[ast.expr](), {total}
        case _:
            return None
    for later in range(place + 1, len(block)):
        match block[later]:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name()) if name != total:
                written.add(name)
            case ast.If(test=ast.Compare(left=ast.Name(id=name), ops=[ast.IsNot()]) as test, orelse=[]) if (
                name not in written and isinstance(test.comparators[0], ast.Constant)
            ):
                tests.append(test)
            case ast.Assign(value=value) | ast.Return(value=value) | ast.Expr(value=value):
                match called(first_call(value) if value else None, owner):
                    case (name, ast.Name(id=of)) if of == total:
                        return name, later, tests
                return None
            case _:
                return None
    return None


def _join(
    block: list[Any], place: int, name: str, later: int, tests: list[ast.expr], *, number: int
) -> None:
    """Put the norm of a sum where the sum is, unless one of some tests holds."""
    add: Any = block[place]
    made = MADE.format(number)
    value: Any = block[later].value
    call: Any = first_call(value)
    norm: ast.expr = call.func
    for test in reversed(tests):
        norm = ast.IfExp(test, ast.Constant(None), norm)
    targets = ast.Tuple([ast.Name(made, ast.Store()), add.targets[0]], ast.Store())
    block[place] = at(ast.Assign([targets], helped(name, [norm, add.value.left, add.value.right])), add)
    inner: ast.expr = ast.Name(made, ast.Load())
    if tests:
        is_none = ast.Compare(inner, [ast.Is()], [ast.Constant(None)])
        inner = ast.IfExp(is_none, ast.Call(call.func, call.args, []), inner)
    block[later].value = Swap(call, at(inner, call)).visit(value)
