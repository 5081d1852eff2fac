"""The field `init`: the constructor's arguments, and their use by layers and initialisers."""

import ast
import math
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from fusegen.core.constructor import Argument, Value
from fusegen.errors import (
    NotAFormula,
    NotInInit,
    NumberOutOfRange,
    Span,
    StateOfLayer,
    WrongType,
    WrongValue,
    nearest,
)
from fusegen.language.parse import document as yaml
from fusegen.language.parse import scalars
from fusegen.language.parse.names import check_argument, check_variable
from fusegen.language.parse.shapes import as_mapping, as_scalar

PARTS = ("default", "symbol")
WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")
SIMPLE_ARGUMENT = "arguments are numbers, True, False, None, words in quotes, tuples, or names from `init`"


def written(node: ast.expr) -> str:
    """Return an expression, cut short where it is long; one that nests too deeply for Python by a word."""
    try:
        return ast.unparse(node)[:60]
    except RecursionError:
        return "this"


def read_init(node: yaml.Node) -> tuple[Argument, ...]:
    """Return the constructor's arguments, in the order written."""
    entries = as_mapping(node, "init", "a map", "init: {in_channels: 8, kernel_size: 3}").entries
    found: list[Argument] = []
    for key, span, value in entries:
        check_argument(key, span)
        found.append(_argument(key, span, value))
    return tuple(found)


def symbols(node: yaml.Node) -> list[str]:
    """Return the names by which formulas read the arguments, also where they are wrong otherwise."""
    return [_symbol(key, value) for key, _, value in node.entries] if isinstance(node, yaml.Mapping) else []


def _symbol(key: str, node: yaml.Node) -> str:
    parts = node.entries if isinstance(node, yaml.Mapping) else ()
    return next((v.text for part, _, v in parts if part == "symbol" and isinstance(v, yaml.Scalar)), key)


def _argument(key: str, span: Span, node: yaml.Node) -> Argument:
    """Return an argument: its default, or a map of this and the name by which formulas read it."""
    if not isinstance(node, yaml.Mapping):
        return Argument(key, _value(node, key), span, key)
    example = f"init: {{{key}: {{default: 3, symbol: {key.lower()}_value}}}}"
    parts = {part: value for part, _, value in node.entries}
    for part, place, _ in node.entries:
        if part not in PARTS:
            remedy = nearest(part, PARTS, f"it has {' and '.join(PARTS)}")
            raise WrongValue(place, value=part[:80], key="part of an argument", remedy=remedy)
    if "default" not in parts:
        raise WrongType(node.span, key=key, expected="a map with its default", example=example)
    symbol = as_scalar(parts["symbol"], "symbol", "a name", example) if "symbol" in parts else None
    if symbol is not None:
        check_variable(symbol.text, symbol.span)
    return Argument(key, _value(parts["default"], key), span, symbol.text if symbol else key)


def _value(node: yaml.Node, key: str) -> Value:
    """Return a number, a truth, nothing, a word or a tuple of them."""
    if isinstance(node, yaml.Sequence):
        return tuple(_value(item, key) for item in node.items)
    scalar = as_scalar(node, key, "a number, a word or a list", f"init: {{{key}: 3}}")
    found = scalars.value(scalar, key)
    if not isinstance(found, str) or WORD.fullmatch(found):
        return found
    remedy = "write a number, true, false, null, a plain word or a list of them"
    raise WrongValue(scalar.span, value=found[:80], key=f"value of {key}", remedy=remedy)


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that an argument in a layer's call may have.

    Attributes:
        names: those that `init` declares.
        values: their values, as far as they are right.
        state: the kinds of the module's own tensors, by attribute; they are no arguments.
    """

    names: Collection[str]
    values: dict[str, Value]
    state: dict[str, str]

    def check(self, node: ast.expr, span: Span, of: str = "a layer") -> None:
        """Admit numbers, truths, None, plain words, tuples of them, and names that `init` declares.

        Args:
            node: the argument.
            span: where it is written.
            of: whose argument it is.

        Raises:
            NumberOutOfRange, NotInInit, StateOfLayer, NotAFormula: it is something else.
        """
        match node:
            case ast.Constant(value=float(number)) if not math.isfinite(number):
                raise NumberOutOfRange(span, what="the number")
            case ast.Constant(value=bool() | int() | float() | None):
                return
            case ast.Constant(value=str(characters)) if WORD.fullmatch(characters):
                return
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float()) as operand):
                self.check(operand, span, of)
            case ast.Tuple(elts=items):
                for item in items:
                    self.check(item, span, of)
            case ast.Name(id=used):
                self.check_name(used, span, of)
            case _:
                problem = f"this cannot be an argument of {of}"
                raise NotAFormula(span, problem=problem, remedy=SIMPLE_ARGUMENT)

    def check_name(self, name: str, span: Span, of: str) -> None:
        """Admit a name that `init` declares.

        Raises:
            NotInInit, StateOfLayer: it is another.
        """
        if name in self.names:
            return
        if name in self.state:
            raise StateOfLayer(span, name=name, kind=self.state[name], of=of)
        known = f"`init` declares {', '.join(self.names) or 'nothing'}"
        raise NotInInit(span, name=name, near=nearest(name, self.names, known))

    def value(self, node: ast.expr) -> Value:
        """Return the value of what `check` admits.

        Raises:
            KeyError: it names an argument whose value is wrong; the error of that argument is reported.
        """
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return value
            case ast.UnaryOp(operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.Tuple(elts=items):
                return tuple(map(self.value, items))
            case ast.Name(id=used):
                return self.values[used]
        raise AssertionError("it was checked")

    def known(self, arguments: dict[str, ast.expr]) -> tuple[tuple[str, Value], ...]:
        """Return the arguments whose values are known."""
        found: list[tuple[str, Value]] = []
        for name, node in arguments.items():
            with suppress(KeyError):
                found.append((name, self.value(node)))
        return tuple(found)
