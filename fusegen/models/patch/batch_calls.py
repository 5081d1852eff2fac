"""Calls of batch norms and the activations behind them in the code of forwards.

An activation is called of a norm, of its sum with a residual, or of a variable that has one of these.
Between the statements others may give variables the values of layers, as of a block's shortcut: these then
run before the norm.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from fusegen.models.patch.batches import FUNCTIONS, Batched, Key
from fusegen.models.patch.forwards import Parts, Swap, at, blocks, called, first_call, helped, itself

IN_PLACE, VALUE, RESIDUAL = "fusegen_iadd", "fusegen_value", "fusegen_residual"


def rewrite(
    tree: ast.FunctionDef, scope: Mapping[str, Any], choose: Callable[[Key], Batched | None]
) -> Parts:
    """Have a forward call helpers for norms and activations, and yield these.

    Args:
        tree: of the forward.
        scope: its global names.
        choose: returns the kernel of a norm, an activation, its function, and what is between; or None.
    """
    found, owner = set[str](), itself(tree)
    for block in blocks(tree):
        for place, statement in enumerate(block):
            value = getattr(statement, "value", None)
            for node in [*ast.walk(value)] if isinstance(value, ast.expr) else ():
                act = _act(node, owner, scope)
                spot = act and _spot(tree, block, place, node)
                if spot and spot.edits and not _is_last(tree, block, place, node, spot):
                    continue
                part = act and spot and choose((spot.norm, *act, "add_" if spot.residual else ""))
                if spot and part and part.name not in found:
                    found.add(part.name)
                    yield part, _join(block, place, node, spot, owner)


def _act(node: Any, owner: str, scope: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the name of an activation that is called, where it is a layer, or its function."""
    layer = called(node, owner)
    if layer is not None:
        return layer[0], ""
    if (
        not isinstance(node, ast.Call)
        or not node.args
        or {each.arg for each in node.keywords} - {"inplace"}
    ):
        return None
    function: Any = scope
    for name in ast.unparse(node.func).split("."):
        function = scope.get(name) if function is scope else getattr(function, name, None)
    of = FUNCTIONS.get(function) if isinstance(function, Hashable) else None
    return ("", of) if of else None


@dataclass
class Spot:
    """A norm in front of an activation.

    Attributes:
        norm: its name.
        x: what it is called of.
        residual: what is added to it.
        shown: the same in the code of the forward.
        sum: the two, by the names of the helper's function.
        edits: the statements that become others, by place.
    """

    norm: str
    x: ast.expr
    residual: ast.expr | None = None
    shown: str = ""
    sum: str = VALUE
    edits: dict[int, ast.stmt] = field(default_factory=dict)


def _spot(tree: ast.FunctionDef, block: list[Any], place: int, node: Any) -> Spot | None:
    """Return the norm that an activation is called of."""
    owner, residual, form, edits = itself(tree), None, VALUE, dict[int, ast.stmt]()
    inner = node.args[0]
    match inner:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            is_first = called(left, owner) is not None or (
                called(right, owner) is None and _norm_before(tree, block, place, left) is not None
            )
            inner, residual = (left, right) if is_first else (right, left)
            form = f"{VALUE} + {RESIDUAL}" if is_first else f"{RESIDUAL} + {VALUE}"
        case ast.Name(id=name) if place and (found := _added(block[place - 1], name)):
            residual, form = found
            own = ast.Assign([ast.Name(RESIDUAL, ast.Store())], residual)
            edits[place - 1] = at(own, block[place - 1])
    if residual is not None and not _is_simple(residual, owner):
        return None
    direct, shown = called(inner, owner), ast.unparse(residual) if residual is not None else ""
    if direct is not None and not edits:
        is_free = not _is_called_of(residual, _names(tree, direct[1]))
        return Spot(*direct, residual, shown, form) if is_free else None
    before = _norm_before(tree, block, place - len(edits), inner)
    if before is None or first_call(block[place].value) is not node:
        return None
    name, x, where = before
    if residual is not None and _mentions(residual, {inner.id}):
        return None
    if _is_called_of(residual, _names(tree, x)):
        return None
    edits[where] = at(ast.Assign([ast.Name(inner.id, ast.Store())], x), block[where])
    if len(edits) > 1:
        residual = ast.Name(RESIDUAL, ast.Load())
    return Spot(name, inner, residual, shown, form, edits)


def _added(statement: Any, name: str) -> tuple[ast.expr, str] | None:
    """Return what a statement adds to a variable, and the sum by the names of the helper's function."""
    match statement:
        case ast.AugAssign(target=ast.Name(id=of), op=ast.Add(), value=value) if of == name:
            return value, f"{IN_PLACE}({VALUE}, {RESIDUAL})"
        case ast.Assign(targets=[ast.Name(id=of)], value=ast.BinOp(op=ast.Add()) as add) if of == name:
            match add.left, add.right:
                case ast.Name(id=first), other if first == name:
                    return other, f"{VALUE} + {RESIDUAL}"
                case other, ast.Name(id=last) if last == name:
                    return other, f"{RESIDUAL} + {VALUE}"
    return None


def _norm_before(
    tree: ast.FunctionDef, block: list[Any], place: int, of: ast.expr
) -> tuple[str, ast.expr, int] | None:
    """Return the layer whose value a variable has."""
    if not isinstance(of, ast.Name):
        return None
    owner = itself(tree)
    for where in range(place - 1, -1, -1):
        match block[where]:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == of.id:
                found = called(value, owner)
                names = {of.id} | (_names(tree, found[1]) if found else set())
                if found is None or any(_mentions(each, names) for each in block[where + 1 : place]):
                    return None
                return *found, where
        if not _is_beside(block[where], owner):
            return None
    return None


def _is_last(tree: ast.AST, block: list[Any], place: int, node: Any, spot: Spot) -> bool:
    """Tell if nothing reads the variable of a norm but the activation."""
    assert isinstance(spot.x, ast.Name)
    name, statement = spot.x.id, block[place]
    if _count(statement.value, name) > _count(node.args[0], name):
        return False
    if isinstance(statement, ast.Return):
        return True
    if isinstance(statement, ast.Assign) and any(_mentions(each, {name}) for each in statement.targets):
        return True
    if any(block in blocks(each) for each in ast.walk(tree) if isinstance(each, ast.For | ast.While)):
        return False  # the next time around may read it
    inside = [statement, *(block[where] for where in spot.edits)]
    return _count(tree, name) == sum(_count(each, name) for each in inside)


def _count(node: ast.AST, name: str) -> int:
    return sum(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node))


def _is_beside(statement: Any, owner: str) -> bool:
    """Tell if a statement gives a variable the value of a layer or of another one, perhaps by a test."""
    match statement:
        case ast.Assign(targets=[ast.Name()], value=value):
            return _is_simple(value, owner)
        case ast.If(test=test, body=body, orelse=[]):
            is_pure = not any(isinstance(each, ast.Call) for each in ast.walk(test))
            return is_pure and all(_is_beside(each, owner) for each in body)
    return False


def _is_simple(value: ast.expr, owner: str) -> bool:
    """Tell if a value is a variable, or that of layers called of one."""
    found = called(value, owner)
    return isinstance(value, ast.Name) if found is None else _is_simple(found[1], owner)


def _names(tree: ast.AST, of: ast.expr) -> set[str]:
    """Return a variable and others that may have its tensor; none for another expression."""
    names = {of.id} if isinstance(of, ast.Name) else set()
    pairs = list[set[str]]()
    for each in ast.walk(tree):
        match each:
            case ast.Assign(targets=[ast.Name(id=one)], value=ast.Name(id=other)):
                pairs.append({one, other})
    for pair in pairs * len(pairs):
        names |= pair if pair & names else set()
    return names


def _is_called_of(value: ast.expr | None, names: Set[str]) -> bool:
    """Tell if layers, which may write in place, are called of one of some variables."""
    return isinstance(value, ast.Call) and _mentions(value, names)


def _mentions(node: ast.AST, names: Set[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))


def _join(block: list[Any], place: int, node: Any, spot: Spot, owner: str) -> str:
    """Have a call of an activation call the helper, and return what that does."""
    names = VALUE if spot.residual is None else f"{VALUE}, {RESIDUAL}"
    apart: Any = ast.parse(f"lambda {names}: 0", mode="eval").body
    inner = ast.parse(spot.sum, mode="eval").body
    apart.body = ast.Call(node.func, [inner, *node.args[1:]], node.keywords)
    norm = ast.Attribute(ast.Name(owner, ast.Load()), spot.norm, ast.Load())
    added = [] if spot.residual is None else [spot.residual]
    text = f"{spot.norm}({ast.unparse(spot.x)})" + (f" + {spot.shown}" if spot.shown else "")
    text = f"{ast.unparse(node.func)}({text})".replace(f"{owner}.", "")
    made = helped(spot.norm, [norm, node.func, spot.x, apart, *added])
    block[place].value = Swap(node, at(made, node)).visit(block[place].value)
    for where, statement in spot.edits.items():
        block[where] = statement
    return text
