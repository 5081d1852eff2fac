"""Parameters and buffers of the module's own, with what initialises them."""

import ast
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from fusegen.core.constructor import Kind, Sizes, Value, literal
from fusegen.core.layer_arguments import each, is_real, is_whole
from fusegen.core.spec import MAX_DIMENSIONS, MAX_ELEMENTS
from fusegen.errors import (
    NotAnInitialiser,
    NotAShape,
    NumberOutOfRange,
    Span,
    TooLarge,
    WholeNumbers,
    nearest,
)
from fusegen.language.parse.init import Scope, written

KINDS = {kind.value: kind for kind in Kind}
TAKES = {
    **dict.fromkeys(("randn", "rand", "zeros", "ones"), "a shape"),
    "full": "a shape and a number",
    "tensor": "a number or a tuple of numbers",
}
LIST = "it is randn(s), rand(s), zeros(s), ones(s), full(s, v) or tensor(v), or a number times one of these"
OF = "an initialiser"


@dataclass(frozen=True, slots=True)
class Made:
    """A tensor as Python makes it, and its shape at the constructor's defaults."""

    text: str
    shape: Sizes


@dataclass(frozen=True, slots=True)
class Initialisers:
    """Reads what initialises the tensors of one kind.

    Functions raise KeyError for an argument of the constructor whose value is wrong: its error is reported.
    """

    kind: str
    place: Callable[[ast.AST], Span]
    scope: Scope

    def of(self, call: ast.Call) -> Made:
        """Return the initial value of a parameter or a buffer.

        Raises:
            NotAnInitialiser, NotAShape, WholeNumbers, NumberOutOfRange, TooLarge, NotInInit, StateOfLayer,
            NotAFormula: it is not an initialiser.
        """
        if len(call.args) != 1 or call.keywords:
            self.fail(call, f"a {self.kind} takes one argument, which initialises it")
        match call.args[0]:
            case ast.BinOp(left=factor, op=ast.Mult(), right=ast.Call() as made):
                found = self.made(made)
                return Made(f"{self.factor(factor)} * {found.text}", found.shape)
            case ast.BinOp(left=ast.Call() as made, op=ast.Mult(), right=factor):
                found = self.made(made)
                return Made(f"{found.text} * {self.factor(factor)}", found.shape)
            case ast.Call() as made:
                return self.made(made)
            case other:
                self.fail(other, f"{written(other)} makes no tensor")

    def fail(self, node: ast.expr, problem: str, remedy: str = LIST) -> NoReturn:
        """Refuse what initialises nothing."""
        raise NotAnInitialiser(self.place(node), kind=self.kind, problem=problem, remedy=remedy)

    def made(self, node: ast.Call) -> Made:
        """Return the value that one of the functions makes."""
        name = written(node.func)
        if name not in TAKES:
            self.fail(node, f"{name} is none of the functions", nearest(name, TAKES, LIST))
        most = {"full": 2, "tensor": 1}.get(name, MAX_DIMENSIONS)
        least = {"full": 2}.get(name, 1)
        if node.keywords or not least <= len(node.args) <= most:
            self.fail(node, f"{name} takes {TAKES[name]}, by place")
        for arg in node.args:
            self.scope.check(arg, self.place(arg), OF)
        if name == "tensor":
            value = self.numbers(node, node.args[0])
            text = f"torch.tensor({ast.unparse(node.args[0])})"
            return Made(text, (len(value),) if isinstance(value, tuple) else ())
        if name == "full":
            size, number = node.args
            shape, text = self.shape([size]), ast.unparse(size)
            text = text if isinstance(self.scope.value(size), tuple) else f"({text},)"
            if isinstance(self.numbers(node, number), tuple):
                self.fail(number, f"{name} takes {TAKES[name]}")
            return Made(f"torch.full({text}, {ast.unparse(number)})", shape)
        return Made(f"torch.{name}({', '.join(map(ast.unparse, node.args))})", self.shape(node.args))

    def shape(self, nodes: Sequence[ast.expr]) -> Sizes:
        """Return the sizes that one tuple says, or numbers."""
        values = [self.scope.value(node) for node in nodes]
        whole = values[0] if len(nodes) == 1 else tuple(values)
        sizes = each(whole)
        if not all(is_whole(size, 0) for size in sizes):
            pairs = zip(nodes, values, strict=True)
            wrong = next(node for node, value in pairs if len(nodes) == 1 or not is_whole(value, 0))
            raise NotAShape(self.place(wrong), value=self.shown(wrong))
        if len(sizes) > MAX_DIMENSIONS or math.prod(sizes) > MAX_ELEMENTS:
            size = " x ".join(map(str, sizes))
            limit = f"{MAX_DIMENSIONS} dimensions and {MAX_ELEMENTS:,} elements"
            remedy = "no device holds such a tensor"
            raise TooLarge(self.place(nodes[0]), what="the shape", size=size, limit=limit, remedy=remedy)
        return sizes

    def numbers(self, call: ast.Call, node: ast.expr) -> Value:
        """Return a number or a tuple of numbers, of which one at least is no whole number."""
        value = self.scope.value(node)
        numbers = each(value)
        if not all(is_real(number) for number in numbers):
            self.fail(node, f"{self.shown(node)} is no number")
        if numbers and all(isinstance(number, int) for number in numbers):
            raise WholeNumbers(self.place(node), written=written(call), value=str(numbers[0])[:60])
        return value

    def factor(self, node: ast.expr) -> str:
        """Return a number that an initialiser is multiplied by, in Python."""
        if isinstance(node, ast.BinOp | ast.Call):
            self.fail(node, f"{written(node)} is no number")
        self.scope.check(node, self.place(node), OF)
        value: Any = self.scope.value(node)
        if not is_real(value):
            self.fail(node, f"{self.shown(node)} is no number")
        if abs(value) >= 2**1023:
            raise NumberOutOfRange(self.place(node), what="the number")
        return ast.unparse(node)

    def shown(self, node: ast.expr) -> str:
        """Return a value as a message shows it, with the name that it has in `init`."""
        value = literal(self.scope.value(node))[:60]
        return f"{value} of {node.id!r}" if isinstance(node, ast.Name) else value
