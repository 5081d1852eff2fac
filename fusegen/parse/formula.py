"""The formula language: Python's expression syntax, read through a whitelist.

Python's own parser builds the tree (`ast.parse` runs nothing); this file admits numbers, names, arithmetic,
one comparison at a time, and calls by plain name. Everything else is told apart by what it is.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction

from fusegen.errors import (
    NotAFormula,
    NotReal,
    NumberOutOfRange,
    Span,
    TooLarge,
    UnknownArgument,
    UnknownName,
    WrongArity,
    nearest,
)
from fusegen.ops import CONSTANTS, FUNCTIONS, OPS, Op
from fusegen.term import Apply, Name, Number, SpecCall, Term

MAX_LENGTH, MAX_PARENTHESES, MAX_DEPTH = 4096, 64, 100

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow",
}  # fmt: skip
COMPARISON: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip
FEWER_ARGUMENTS: dict[tuple[str, tuple[str, ...]], str] = {
    ("clamp", ("x", "min")): "clamp_min",
    ("clamp", ("x", "max")): "clamp_max",
}
FOREIGN: dict[type[ast.AST], str] = {
    ast.Attribute: "an attribute",
    ast.Subscript: "an index",
    ast.Lambda: "a lambda",
    ast.JoinedStr: "an f-string",
    ast.NamedExpr: "an assignment",
    ast.IfExp: "an if-else",
    ast.BoolOp: "a logical operator",
    ast.Starred: "a starred argument",
    ast.Tuple: "a tuple",
    ast.List: "a list",
    ast.Set: "a set",
    ast.Dict: "a dictionary",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.Await: "an await",
    ast.Yield: "a yield",
    ast.YieldFrom: "a yield",
}
REMEDY = "use numbers, names, + - * / **, comparisons inside where(...), and functions"


def parse_tree(text: str, at: Callable[[int], Span]) -> tuple[ast.expr, Callable[[ast.AST], Span]]:
    """The tree of one Python expression, and where each node was written.

    Raises:
        NotAFormula: it is not an expression in printable ASCII.
        TooLarge: it is longer, or nests deeper, than any formula should.
    """
    _check_size(text, at)
    odd = next((i for i, c in enumerate(text) if not (c.isascii() and c.isprintable())), None)
    if odd is not None:
        problem = f"the character {text[odd]!r} has no meaning in one"
        raise NotAFormula(at(odd), problem=problem, remedy="write pi, x**2, sqrt(x) in plain ASCII")
    stripped = text.lstrip()
    skipped = len(text) - len(stripped)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of odd spellings that are refused below
            tree = ast.parse(stripped, mode="eval").body
    except (SyntaxError, ValueError) as error:
        offset = max(0, (getattr(error, "offset", None) or 1) - 1)
        problem = "Python's grammar does not allow it here" if stripped else "it is empty"
        raise NotAFormula(at(skipped + offset), problem=problem, remedy=REMEDY) from None
    except (MemoryError, RecursionError):
        raise _too_deep(at(0)) from None
    return tree, lambda node: at(skipped + getattr(node, "col_offset", 0))


def parse_formula(text: str, at: Callable[[int], Span], scope: Collection[str]) -> Term:
    """The term that a formula denotes, `scope` being the names it may use.

    Raises:
        NotAFormula, TooLarge, UnknownName, WrongArity, UnknownArgument, NotReal, NumberOutOfRange.
    """
    tree, place = parse_tree(text, at)
    reader = _Reader(text.lstrip(), place, scope)
    return reader.real(tree, 0)


def _check_size(text: str, at: Callable[[int], Span]) -> None:
    remedy = "name parts of it under `where`"
    if len(text) > MAX_LENGTH:
        size, limit = f"{len(text):,} characters", f"{MAX_LENGTH:,}"
        raise TooLarge(at(0), what="the formula", size=size, limit=limit, remedy=remedy)
    depth = 0
    for index, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth > MAX_PARENTHESES:
            size = f"more than {MAX_PARENTHESES} nested parentheses"
            where = at(index)
            raise TooLarge(where, what="the formula", size=size, limit=MAX_PARENTHESES, remedy=remedy)


def _too_deep(span: Span) -> TooLarge:
    size, remedy = f"more than {MAX_DEPTH} nested operations", "name parts of it under `where`"
    return TooLarge(span, what="the formula", size=size, limit=MAX_DEPTH, remedy=remedy)


class _Reader:
    """One formula's text, the place of each node, and the names in scope."""

    def __init__(self, text: str, place: Callable[[ast.AST], Span], scope: Collection[str]) -> None:
        self.text, self.place, self.scope = text, place, scope

    def real(self, node: ast.expr, depth: int) -> Term:
        """The term of a node that has to be a real number."""
        term = self.term(node, depth)
        if isinstance(term, Apply) and OPS[term.op].boolean:
            raise NotReal(self.place(node), what="a comparison", expected="a number")
        return term

    def condition(self, node: ast.expr, depth: int) -> Term:
        """The term of a node that has to be a comparison."""
        if not isinstance(node, ast.Compare):
            raise NotReal(self.place(node), what="a number", expected="a comparison")
        return self.term(node, depth)

    def term(self, node: ast.expr, depth: int) -> Term:
        span = self.place(node)
        if depth > MAX_DEPTH:
            raise _too_deep(span)
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return self.number(node, value)
            case ast.Name(id=name):
                return self.name(name, span)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                term = self.real(operand, depth + 1)
                if isinstance(operand, ast.Constant) and isinstance(term, Number):
                    return Number(-term.value, span)
                return Apply("neg", (term,), span)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.real(operand, depth + 1)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                both = self.real(left, depth + 1), self.real(right, depth + 1)
                return Apply(BINARY[type(op)], both, span)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISON:
                both = self.real(left, depth + 1), self.real(right, depth + 1)
                return Apply(COMPARISON[type(op)], both, span)
            case ast.Call(func=ast.Name(id=name)):
                return self.call(name, node, depth)
        what = FOREIGN.get(type(node))
        problem = f"{what} is not part of the language" if what else "this is not part of the language"
        raise NotAFormula(span, problem=problem, remedy=REMEDY)

    def number(self, node: ast.Constant, value: float) -> Number:
        """The exact number that a literal writes."""
        text = (ast.get_source_segment(self.text, node) or "").replace("_", "")
        if isinstance(value, int):
            fits, exact = value.bit_length() <= 1024, Fraction(value)
        else:
            mantissa = text.lower().split("e")[0].strip("0.")
            fits = math.isfinite(value) and (value != 0 or not mantissa)
            exact = Fraction(text) if fits and mantissa else Fraction(0)
        if not fits:
            raise NumberOutOfRange(self.place(node), text=text[:40])
        return Number(exact, self.place(node))

    def name(self, name: str, span: Span) -> Term:
        if name in self.scope:
            return Name(name, span)
        if name in CONSTANTS:
            return Apply(name, (), span)
        if name in FUNCTIONS:
            what = f"the function {name} without its arguments"
            raise NotReal(span, what=what, expected="a number")
        known = [*self.scope, *CONSTANTS]
        hint = nearest(name, known, "declare it under `inputs`, `params` or `where`")
        raise UnknownName(span, name=name, near=hint)

    def call(self, name: str, node: ast.Call, depth: int) -> Term:
        span = self.place(node)
        for part in (*node.args, *(keyword.value for keyword in node.keywords)):
            if isinstance(part, ast.Starred):
                raise NotAFormula(self.place(part), problem="a starred argument", remedy=REMEDY)
        if any(keyword.arg is None for keyword in node.keywords):
            raise NotAFormula(span, problem="** unpacks a dictionary here", remedy=REMEDY)
        if name not in FUNCTIONS:
            args = tuple(self.real(arg, depth + 1) for arg in node.args)
            keywords = tuple((k.arg or "", self.real(k.value, depth + 1)) for k in node.keywords)
            return SpecCall(name, args, keywords, span)
        op, values = self.bind(FUNCTIONS[name], node)
        readers = [self.condition if arg == "condition" else self.real for arg in op.args]
        args = tuple(read(value, depth + 1) for read, value in zip(readers, values, strict=True))
        return Apply(op.name, args, span)

    def bind(self, op: Op, node: ast.Call) -> tuple[Op, Sequence[ast.expr]]:
        """The row that a call means and its arguments in that row's order."""
        given = dict(zip(op.args, node.args, strict=False))
        for keyword in node.keywords:
            name = str(keyword.arg)
            if name not in op.args or name in given:
                where = self.place(keyword.value)
                raise UnknownArgument(where, name=op.name, argument=name, signature=op.signature)
            given[name] = keyword.value
        present = tuple(arg for arg in op.args if arg in given)
        if len(node.args) <= len(op.args):
            if present == op.args:
                return op, [given[arg] for arg in op.args]
            if fewer := FEWER_ARGUMENTS.get((op.name, present)):
                return OPS[fewer], [given[arg] for arg in present]
        count = len(op.args)
        expected = f"{count} argument{'s' if count > 1 else ''}"
        number = len(node.args) + len(node.keywords)
        found = f"{number} {'is' if number == 1 else 'are'}"
        where = self.place(node)
        raise WrongArity(where, name=op.name, expected=expected, found=found, signature=op.signature)
