"""Statements of source files, the calls that they show, and the names of values in them."""

import ast
import functools
import linecache
from collections.abc import Mapping

BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow", ast.MatMult: "matmul",
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip
SAME = {  # other names of operators
    "truediv": "div", "true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub",
    "float": "to", "half": "to", "double": "to", "type": "to", "type_as": "to", "negative": "neg",
}  # fmt: skip
SPACES = frozenset("torch F nn functional special".split())  # whose attributes are functions
VIEWS = frozenset(
    "view view_as reshape expand expand_as unsqueeze squeeze permute transpose flatten contiguous clone "
    "detach to float half type type_as chunk split unbind T mT data".split()
)


def variable_of(statement: ast.stmt | None) -> str:
    """Return the variable that a statement assigns to; empty where it assigns to none or several."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AugAssign(target=ast.Name(id=name)):
            return name
        case ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return ""


def statement_at(file: str, line: int) -> ast.stmt | None:
    """Return the simple statement that a line of a file is in."""
    return _statements("".join(linecache.getlines(file))).get(line)


@functools.lru_cache(maxsize=64)
def _statements(text: str) -> Mapping[int, ast.stmt]:
    """Return the simple statements of a file, by their lines."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    simple = (each for each in ast.walk(tree) if isinstance(each, ast.stmt) and not hasattr(each, "body"))
    return {line: each for each in simple for line in range(each.lineno, (each.end_lineno or 0) + 1)}


def in_order(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes of a tree in the order in which they run: operands first."""
    found, left = list[ast.AST](), [tree]
    while left:
        node = left.pop()
        found.append(node)
        left += ast.iter_child_nodes(node)
    return found[::-1]


def shown(at: ast.AST, name: str) -> tuple[ast.AST, tuple[ast.expr, ...]] | None:
    """Return an expression and its operands, if it is of an operation."""
    match at:
        case ast.BinOp(left=left, op=op, right=right) if BINARY.get(type(op)) == name:
            return at, (left, right)
        case ast.AugAssign(target=target, op=op, value=value) if BINARY.get(type(op)) == name:
            assert isinstance(target, ast.expr)
            return at, (target, value)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if BINARY.get(type(op)) == name:
            return at, (left, right)
        case ast.UnaryOp(op=ast.USub(), operand=operand) if name == "neg":
            return at, (operand,)
        case ast.Call(func=ast.Name(id=called), args=args) if _is_named(called, name):
            return at, tuple(args)
        case ast.Call(func=ast.Attribute(value=of, attr=called), args=args) if _is_named(called, name):
            is_method = root_of(of) not in SPACES and root_of(of) != "self"
            return at, (of, *args) if is_method else tuple(args)
    return None


def _is_named(called: str, name: str) -> bool:
    plain = called.strip("_").lower()
    return SAME.get(plain, plain) == name or called == name


def root_of(of: ast.expr) -> str:
    """Return the name that a chain of attributes begins with; empty for other expressions."""
    while isinstance(of, ast.Attribute):
        of = of.value
    return of.id if isinstance(of, ast.Name) else ""


def name_in(of: ast.expr) -> tuple[str, bool]:
    """Return the name of a value in an expression, of which it may be a view, and if a module made it."""
    match of:
        case ast.Name(id=name):
            return ("" if name == "self" else name), False
        case ast.NamedExpr(target=ast.Name(id=name)):
            return name, False
        case ast.Subscript(value=value):
            return name_in(value)
        case ast.Attribute(value=value, attr=name):
            is_known = root_of(of) and root_of(of) not in SPACES
            return name_in(value) if name in VIEWS else (name if is_known else "", False)
        case ast.Call(func=ast.Attribute(value=value, attr=name)):
            if name in VIEWS:
                return name_in(value)
            return (name, True) if root_of(value) == "self" else ("", False)
        case ast.Call(func=ast.Name(id=name)):
            return name, True
    return "", False
