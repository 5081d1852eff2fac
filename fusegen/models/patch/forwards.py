"""Forwards of layers with other statements, made from their source.

The new function has the globals, the closure, the defaults and the lines of the old one. Source is taken
only where it compiles to the code that the function has: a file that was edited since is another text.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Callable, Iterable, Iterator, Mapping
from tokenize import TokenError
from types import CellType, CodeType, FunctionType
from typing import Any

from torch import nn

from fusegen.models.patch.gates import SPECIAL

NAMES = "co_code co_names co_varnames co_freevars co_cellvars".split()
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal)
UNREADABLE = (OSError, TypeError, ValueError, SyntaxError, TokenError, IndexError, StopIteration)
WATCHED = {"locals", "vars", "dir", "eval", "exec"}  # which see the variables of a forward
# what evaluates some of its parts perhaps, or later
BRANCHES = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
HELPER = "fusegen_kernels"  # the name that a forward has for helpers, by key
FACTORY = "def factory({}): pass"
Parts = Iterable[tuple[Any, str]]  # what kernels compute in a forward, each with its code


def tree_of(kind: Any) -> ast.FunctionDef | None:
    """Return the syntax tree of the forward of a class; None where it has none that is its own code."""
    bases = [base for base in kind.__mro__ if base not in (nn.Module, object)]
    own = SPECIAL - {"training", "__init_subclass__"}
    function = inspect.unwrap(kind.forward)
    is_plain = type(kind) is type and not any(vars(base).keys() & own for base in bases)
    if not is_plain or not isinstance(function, FunctionType) or _rewrapped(kind.forward, function) is None:
        return None
    try:
        statement = _parsed(function)
        is_own = statement is not None and _same(_code(function, statement, ()), function.__code__)
    except UNREADABLE:  # of a file that was edited, or a lambda
        return None
    return statement if is_own else None


def source_of(kind: Any, method: str = "forward") -> ast.FunctionDef | None:
    """Return the syntax tree of a method of a class, to be read alone; None where it has no source."""
    found: Any = getattr(kind, method, None)
    function = inspect.unwrap(found)
    return _source_of(function) if isinstance(function, FunctionType) else None


@functools.lru_cache(maxsize=256)
def _source_of(function: FunctionType) -> ast.FunctionDef | None:
    try:
        return _parsed(function)
    except UNREADABLE:
        return None


def _parsed(function: FunctionType) -> ast.FunctionDef | None:
    """Return the source of a function of a layer, without decorators; None for one with others inside."""
    lines, start = inspect.getsourcelines(function)
    is_inside = lines[0][0].isspace()
    module: Any = ast.parse("".join(["if True:\n"] * is_inside + lines))
    statement = module.body[0].body[0] if is_inside else module.body[0]
    if not isinstance(statement, ast.FunctionDef) or not itself(statement):
        return None
    ast.increment_lineno(statement, start - 1 - is_inside)
    statement.decorator_list = []
    inner = (each for node in statement.body for each in ast.walk(node))
    return None if any(_is_refused(each) for each in inner) else statement


def _is_refused(node: ast.AST) -> bool:
    return isinstance(node, SCOPES) or (isinstance(node, ast.Name) and node.id in WATCHED)


def itself(tree: ast.FunctionDef) -> str:
    """Return the name that a forward has for its layer; empty where it has none."""
    return next((each.arg for each in (*tree.args.posonlyargs, *tree.args.args)), "")


def function_of(original: Any, tree: ast.FunctionDef, given: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a forward with the statements of a tree, in which names are given, under its decorators."""
    inner: Any = inspect.unwrap(original)
    code = _code(inner, ast.fix_missing_locations(tree), given)
    cells = dict(zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True))
    cells |= {name: CellType(value) for name, value in given.items()}
    closure = tuple(cells[name] for name in code.co_freevars)
    made = FunctionType(code, inner.__globals__, inner.__name__, inner.__defaults__, closure)
    made.__kwdefaults__, made.__qualname__ = inner.__kwdefaults__, inner.__qualname__
    wrapped: Callable[..., Any] | None = _rewrapped(original, made)
    assert wrapped is not None
    return wrapped


def blocks(tree: ast.AST) -> Iterator[list[Any]]:
    """Yield the lists of statements in a tree."""
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            found = getattr(node, field, None)
            if isinstance(found, list):
                yield found


def first_call(node: ast.AST) -> ast.AST | None:
    """Return the call that an expression makes first; another node where that is not known."""
    if isinstance(node, BRANCHES):
        return node if any(isinstance(each, ast.Call) for each in ast.walk(node)) else None
    if isinstance(node, ast.NamedExpr):  # which changes a variable
        return node
    inside = (first_call(each) for each in ast.iter_child_nodes(node))
    return next((each for each in inside if each is not None), node if isinstance(node, ast.Call) else None)


def called(node: ast.AST | None, layer: str) -> tuple[str, ast.expr] | None:
    """Return the name of the layer that a call calls, of the layer of a name, and its one argument."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=of), attr=name), args=[argument], keywords=[]
        ) if of == layer and not isinstance(argument, ast.Starred):
            return name, argument
    return None


def helped(key: str, arguments: list[ast.expr]) -> ast.expr:
    """Return a call of the helper of a key."""
    function = ast.Subscript(ast.Name(HELPER, ast.Load()), ast.Constant(key), ast.Load())
    return ast.Call(function, arguments, [])


def at(node: Any, before: ast.AST) -> Any:
    """Return a node with the lines of another one."""
    return ast.fix_missing_locations(ast.copy_location(node, before))


class Swap(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, before: ast.AST, after: ast.AST) -> None:
        """Take the two."""
        self.before, self.after = before, after

    def visit(self, node: ast.AST) -> Any:
        """Return the node in the place of one."""
        return self.after if node is self.before else self.generic_visit(node)


def swapped(
    tree: ast.FunctionDef, match: Callable[[ast.Call], tuple[Any, ast.expr] | None]
) -> list[tuple[Any, str]]:
    """Put others in the place of calls in a forward, and return what kernels compute there, with texts."""
    found = list[tuple[Any, str]]()

    class Swapped(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> Any:
            text = ast.unparse(node).removeprefix(f"{itself(tree)}.")
            self.generic_visit(node)
            other = match(node)
            if other is None:
                return node
            found.append((other[0], text))
            return at(other[1], node)

    Swapped().visit(tree)
    return found


def _code(function: FunctionType, tree: ast.FunctionDef, given: Any) -> CodeType:
    """Compile a function inside another one that has its free variables and given names."""
    names = [*function.__code__.co_freevars, *given]
    module = ast.parse(FACTORY.format(", ".join(names)))
    factory: Any = module.body[0]
    factory.body = [tree]
    file = function.__code__.co_filename
    module.body = [*_imports(file), factory]  # calls of methods of what a module imports are other code
    whole = compile(module, file, "exec", dont_inherit=True)
    [outer] = _codes(whole)
    return next(code for code in _codes(outer) if code.co_name == function.__code__.co_name)


@functools.cache
def _imports(file: str) -> tuple[ast.stmt, ...]:
    """Return the imports of a file that are in no function and no class."""
    found, left = list[ast.stmt](), list[ast.AST]([ast.parse("".join(linecache.getlines(file)))])
    for node in left:
        left += [each for each in ast.iter_child_nodes(node) if not isinstance(each, SCOPES)]
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if isinstance(node, ast.Import | ast.ImportFrom) and not is_future:
            found.append(node)
    return tuple(found)


def _codes(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _same(one: Any, other: Any) -> bool:
    """Tell if two codes do the same, or two constants are equal."""
    if not isinstance(one, CodeType) or not isinstance(other, CodeType):
        return type(one) is type(other) and repr(one) == repr(other)
    if any(getattr(one, name) != getattr(other, name) for name in NAMES):
        return False
    pairs = zip(one.co_consts, other.co_consts, strict=False)
    return len(one.co_consts) == len(other.co_consts) and all(_same(a, b) for a, b in pairs)


def _rewrapped(function: Any, inner: Any) -> Any:
    """Return a function as its decorators have made it, around another one; None if these cannot be."""
    before = getattr(function, "__wrapped__", None)
    if before is None:
        return inner
    made = _rewrapped(before, inner)
    cells = getattr(function, "__closure__", None) or ()
    holds = [cell for cell in cells if _content(cell) is before]
    if made is None or len(holds) != 1 or not isinstance(function, FunctionType):
        return None
    closure = tuple(CellType(made) if cell is holds[0] else cell for cell in cells)
    new = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, closure
    )
    new.__kwdefaults__, new.__qualname__ = function.__kwdefaults__, function.__qualname__
    vars(new).update(vars(function) | {"__wrapped__": made})
    return new


def _content(cell: CellType) -> Any:
    return cell.cell_contents if cell != CellType() else None
