"""The Python of a standalone file, from that of a module: functions and a class without the runtime."""

import ast
import re
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from fusegen.codegen.render.python import filled
from fusegen.codegen.standalone.functions import parts
from fusegen.codegen.standalone.reading import Module

WIDTH = 120  # of a line
STRING = re.compile(r"( *)return f'(.*)'$")
RENAMED = {"KERNELS.layer": "layer", "KERNELS.dropout": "draw", "KERNELS.convolved": "convolved"}
LEADING = {"KERNELS.along": "along", "KERNELS.mask": "as_numbers"}  # called without the first argument
GIVEN_UP = ("inplace", "out", "input", "approximate")


class _Without(ast.NodeTransformer):
    """Takes the runtime out of a function or a class."""

    def __init__(self, name: str, function: str) -> None:
        self.name, self.function = name, function

    def visit_arguments(self, node: ast.arguments) -> Any:
        """Leave out arguments of what is given up."""
        first = len(node.args) - len(node.defaults)
        pairs = [(a, node.defaults[i - first] if i >= first else None) for i, a in enumerate(node.args)]
        kept = [(a, d) for a, d in pairs if a.arg not in GIVEN_UP or a.arg in self.tensors]
        tensors = [a for a, d in kept if d is None or ast.unparse(d) == "None"]
        keep = {a.arg for a in tensors if a.arg in self.halves or a.arg not in self.tensors}
        node.args = [ast.arg(a.arg) for a, _ in kept]
        node.defaults = [
            d for a, d in kept if d is not None and (ast.unparse(d) != "None" or a.arg in keep)
        ]
        node.kwonlyargs = []
        node.kw_defaults = []
        return node

    halves: frozenset[str] = frozenset()
    tensors: frozenset[str] = frozenset()
    convolves = False  # whether a convolution is one kernel with what is behind it
    index = ""  # the tensor that picks elements, whose call has last the integer that it ignores

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Leave out what the runtime alone reads."""
        value, target = ast.unparse(node.value), ast.unparse(node.targets[0])
        own = value == "KERNELS" or target in ("out", "self.inplace")
        if value.startswith("KERNELS.convolved("):
            return self.generic_visit(node)
        if own or re.match(r"KERNELS\.first\(", value):
            return None
        scalar = re.match(r"KERNELS\.(?:scalar|number)\(", value)
        return ast.parse(f"{target} = float({target})").body[0] if scalar else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        """Leave out the check of a constructor's numbers, which a call makes."""
        is_check = ast.unparse(node.value).startswith("KERNELS.of(")
        return None if is_check else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> Any:
        """Leave out the choices of what is given up, and take the lines of halves and of NaN by eager."""
        test, body = ast.unparse(node.test), ast.unparse(node.body[0])
        if "float" in test and "= KERNELS" in body:
            return self.visit(node.body[0])
        if halves := re.match(r"return KERNELS\.halves\((\w+), dim(.*)\)", body):
            other = test.partition(" ")[0]
            line = f"{halves[1]}, {other} = {halves[1]}.chunk(2, dim)"
            return ast.If(node.test, ast.parse(line).body, [])
        if eager := re.match(r"return KERNELS\.without_kernel\((.*)\)", body):
            call = ast.parse(f"return eager({eager[1]})").body
            return None if "__class__" in test else ast.If(node.test, call, [])
        if self.convolves and (test, body) == ("out is not None", "return out"):
            return node
        if any(re.search(rf"\b{word}\b", test) for word in GIVEN_UP) or ".is_cuda" in test:
            return None
        return self.generic_visit(node) if node.body else None

    def visit_Call(self, node: ast.Call) -> Any:
        """Call the function of the file in place of the runtime's."""
        self.generic_visit(node)
        called = ast.unparse(node.func)
        if called in (f"self.{self.name}.{self.name}_cpu", "KERNELS.run", "KERNELS.call"):
            node.func = ast.Name("kernels" if called.startswith("KERNELS") else self.function)
            node.args = [a for a in node.args if ast.unparse(a) != "self.inplace"]
            if called == "KERNELS.run" and self.index:
                node.args = _indexed(node.args, self.index)
        elif called in LEADING:
            node.func, node.args = ast.Name(LEADING[called]), node.args[1:]
        elif called in RENAMED:
            node.func = ast.Name(RENAMED[called])
        elif called == "KERNELS.index":
            node.func, node.args = ast.Name("indexed"), node.args[1:]
        elif called in ("KERNELS.without_bias", "KERNELS.linear_without_bias"):
            node.func = ast.Name("without_bias")
        elif called == "KERNELS.linear":
            node.func, node.args = node.args[0], node.args[1:]
        node.keywords = [k for k in node.keywords if k.arg not in GIVEN_UP]
        return node


def _indexed(arguments: list[ast.expr], index: str) -> list[ast.expr]:
    """Return the arguments of a loss of classes, whose index is as the kernels of a file take it."""
    *given, ignored = arguments
    read = ast.Call(ast.Name("indexed"), [ast.Name(index), given[0], ignored], [])
    return [read if ast.unparse(each) == index else each for each in given]


def functions(module: Module) -> list[str]:
    """Return the texts of a module's functions and of its class."""
    found = [n for n in module.tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    kept = [n for n in found if n.name not in ("eager", "eager_gradient", "get_inputs", "get_init_inputs")]
    main = next(n.name for n in kept if getattr(n, "decorator_list", ()))
    return [_printed(_without(node, module, main)) for node in kept]


def _without(node: ast.FunctionDef | ast.ClassDef, module: Module, main: str) -> ast.AST:
    without = _Without(module.name, main)
    halves = re.findall(r"if (\w+) is None:\n +return (?:KERNELS\.halves|\w+\(\w+, dim)", ast.unparse(node))
    without.halves = frozenset(halves)
    without.convolves = "KERNELS.convolved(" in ast.unparse(node)
    without.tensors = frozenset(n for n, kind in module.signature("forward").items() if kind == "Tensor")
    if "indices" in module.given and "ignore_index" in ast.unparse(node):
        without.index = [name for name, kind in module.signature("forward").items() if kind == "Tensor"][-1]
    node.decorator_list = []
    if isinstance(node, ast.FunctionDef):
        summary = (ast.get_docstring(node) or "").partition("\n\n")[0]
        node.body[0] = ast.Expr(ast.Constant(" ".join(map(str.strip, summary.splitlines()))))
        node.returns = None
    else:
        node.body = [
            m
            for m in node.body
            if getattr(m, "name", "") != "extra_repr" or "inplace" not in ast.unparse(m)
        ]
    node = without.visit(node)
    if isinstance(node, ast.ClassDef):
        node.body = [m for m in node.body if not _is_plain(m)]
    return node


def _is_plain(member: ast.stmt) -> bool:
    """Return True of a constructor that does nothing and takes nothing."""
    if not isinstance(member, ast.FunctionDef) or member.name != "__init__":
        return False
    return len(member.body) == 1 and len(member.args.args) == 1


def _printed(node: ast.AST) -> str:
    return "\n".join(
        line for long in ast.unparse(ast.fix_missing_locations(node)).splitlines() for line in wrapped(long)
    )


def wrapped_lines(text: str) -> str:
    """Return a text whose lines are broken where they are too long."""
    return "\n".join(part for line in text.split("\n") for part in wrapped(line))


def wrapped(line: str) -> Iterator[str]:
    """Yield a line, or several of one that is too long."""
    margin = line[: len(line) - len(line.lstrip())]
    opened, closed = _parentheses(line)
    if len(line) > WIDTH and (found := STRING.match(line)):
        pieces = filled(parts(found[2], "{", "}"), WIDTH - 10 - len(margin))
        yield f"{margin}return ("
        yield from (f"{margin}    f'{piece} '" for piece in pieces[:-1])
        yield f"{margin}    f'{pieces[-1][:-1]}'"
        yield f"{margin})"
        return
    if line.lstrip().startswith('"'):
        yield from wrap(line, WIDTH, subsequent_indent=margin) or [line]
        return
    if len(line) <= WIDTH or not opened or line.lstrip().startswith(("'", "#")):
        yield line
        return
    yield line[:opened]
    for part in _inside(line[opened:closed], WIDTH - 4 - len(margin)):
        yield f"{margin}    {part}"
    yield f"{margin}{line[closed:]}"


def _inside(text: str, most: int) -> list[str]:
    """Return the lines of what parentheses hold; a comma behind a lone expression would make it a tuple."""
    own = parts(text, "([{", ")]}")
    if len(own) == 1 and not text.rstrip().endswith(","):
        return own
    return [line for line in filled(own, most) if line]


def _parentheses(line: str) -> tuple[int, int]:
    """Return where the last parentheses of a line begin and end; empty ones where there are no others."""
    found, depth, begin = (0, 0), 0, 0
    for at, sign in enumerate(line):
        begin = at + 1 if sign == "(" and depth == 0 else begin
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == ")" and depth == 0 and (begin < at or found == (0, 0)) and begin <= WIDTH:
            found = begin, at
    return found
