"""Functions and classes of Python files, each of which is parsed once for all tests of a process."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
HOLDERS = ast.stmt | ast.ExceptHandler | ast.match_case  # what may hold a statement, other than a module


@dataclass(frozen=True)
class Defined:
    """A definition, as far as tests read it: a tree takes much memory."""

    path: Path
    kind: type[ast.AST]
    name: str
    opening: str  # the first word of its docstring
    lines: int
    parameters: int  # that a caller of a function gives
    is_property: bool


@cache
def definitions(folder: Path) -> tuple[Defined, ...]:
    """Return the modules, classes and functions in the files below a folder."""
    return tuple(
        defined(path, node)
        for path in sorted(folder.rglob("*.py"))
        for node in within(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, Definition)
    )


def within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and the statements in it, without their expressions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, HOLDERS):
            yield from within(child)


def defined(path: Path, node: Definition) -> Defined:
    """Return what tests read of a definition."""
    opening = (ast.get_docstring(node) or "").partition(" ")[0]
    if isinstance(node, ast.Module):
        return Defined(path, ast.Module, "", opening, 0, 0, False)
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    marks = "".join(map(ast.dump, node.decorator_list))
    return Defined(path, type(node), node.name, opening, lines, len(parameters(node)), "property" in marks)


def parameters(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the parameters that a caller of a function gives; none of a class."""
    if isinstance(node, ast.ClassDef):
        return []
    named = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return [name for name in named if name not in ("self", "cls")]
