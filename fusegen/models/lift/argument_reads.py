"""Reads of the constructor's arguments, counted in the text of a model.

Words, truths, None and functions carry no label that a trace could follow. The syntax tree of the file
shows where an argument goes, as long as it is handed on as it is: to a call, or to an attribute.
"""

import ast
from collections.abc import Iterable, Iterator

from torch import nn

from fusegen.models.lift.load import Problem

HIDDEN = frozenset(("locals", "vars", "eval", "exec", "__dict__"))  # names that read others unseen
OF_MODULES = frozenset(dir(nn.Module()))  # attributes that torch.nn reads itself: ``training``


class _Unknown(Exception):
    """A read that may decide anything."""


def reads(problem: Problem, name: str) -> int | None:
    """Return how many calls a model hands an argument of its constructor to, as it is.

    Returns:
        The number; zero where nothing reads the argument, None where it may be read otherwise.
    """
    tree = ast.parse(problem.path.read_text(encoding="utf-8"))
    own = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == problem.attribute]
    if len(own) != 1 or problem.model.__bases__ != (nn.Module,) or any(map(_is_hidden, ast.walk(tree))):
        return None
    methods = (
        node for node in own[0].body if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )
    loads = [node for method in methods for node in ast.walk(method) if _is_name(node, name)]
    try:
        return _count(tree, loads)
    except (_Unknown, RecursionError):  # two attributes may be assigned to each other
        return None


def _count(tree: ast.Module, loads: Iterable[ast.AST]) -> int:
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    return sum(_calls(tree, parents, load) for load in loads)


def _calls(tree: ast.Module, parents: dict[ast.AST, ast.AST], load: ast.AST) -> int:
    """Return how many calls take what is read at one place, also by the attribute that it is kept as."""
    parent = parents[load]
    if isinstance(parent, ast.keyword):
        load, parent = parent, parents[parent]
    if isinstance(parent, ast.Call) and load is not parent.func:
        return 1
    kept = [*_attributes(load, parent, parents)]
    if not kept or not OF_MODULES.isdisjoint(kept):
        raise _Unknown
    return sum(_calls(tree, parents, node) for name in kept for node in _reads_of(tree, name))


def _attributes(load: ast.AST, parent: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[str]:
    """Yield the attributes of self that a value is assigned to; others are unknown."""
    values, parent = (parent.elts, parents[parent]) if isinstance(parent, ast.Tuple) else ([load], parent)
    for target in parent.targets if isinstance(parent, ast.Assign) else ():
        targets = target.elts if isinstance(target, ast.Tuple) else [target] * len(values)
        if len(targets) != len(values) or any(isinstance(each, ast.Starred) for each in targets):
            raise _Unknown
        one = next(of for of, value in zip(targets, values, strict=True) if value is load)
        if not (
            isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self"
        ):
            raise _Unknown
        yield one.attr


def _reads_of(tree: ast.Module, name: str) -> Iterator[ast.AST]:
    """Yield the reads of an attribute of any object in a file."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=attr, ctx=ast.Load()) if attr == name:
                yield node
            case ast.Constant(value=value) if value == name:  # as of getattr
                raise _Unknown
            case ast.AugAssign(target=ast.Attribute(attr=attr)) if attr == name:
                raise _Unknown


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


def _is_hidden(node: ast.AST) -> bool:
    """Return True if what a node reads is not known: ``vars(self)``, or a function that takes self."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in HIDDEN:
            return True
        case ast.Call(func=ast.Name(id="super")):
            return False
        case ast.Call(args=args, keywords=keywords):
            return any(_is_name(each, "self") for each in (*args, *(one.value for one in keywords)))
    return False
