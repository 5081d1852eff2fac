"""The norm that is called first with what a layer returns, as the forwards around the layer say.

It may be wrong, of layers that are called in another order: then the norm takes no value (slots).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch import nn

from fusegen.models.patch.derived import bare
from fusegen.models.patch.forwards import called, itself, source_of

ROWS = (nn.ModuleList, nn.Sequential)  # whose children are called in their order
METHODS = ("forward", "forward_features")  # which call children; timm's models have the second one
UNKNOWN = ""


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
