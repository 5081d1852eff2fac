"""From Python's syntax tree of a formula to a term: operations, names and numbers."""

import ast
import math
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction

from fusegen.core.folds import GATHER
from fusegen.core.ops import CONSTANTS, FUNCTIONS, OPS, argument_count, called
from fusegen.core.ops.row import Op
from fusegen.core.poolings import POOLINGS
from fusegen.core.signatures import EXTENDED, argument_named
from fusegen.core.term import INFINITY, Apply, Name, Number, SpecCall, Term
from fusegen.errors import (
    FusegenError,
    NotAFormula,
    NotReal,
    NumberOutOfRange,
    RepeatedArgument,
    Span,
    TooMany,
    UnknownArgument,
    UnknownFunction,
    UnknownName,
    WrongArity,
    absent,
    nearest,
)
from fusegen.language.parse.foreign import REMEDY, foreign
from fusegen.language.parse.forms import form
from fusegen.language.parse.pooling_call import pooling_call

MAX_LENGTH, MAX_PARENTHESES, MAX_DEPTH = 4096, 64, 100
INFINITE = "inf"  # the word for it
VIEW, ALONG = "unsqueeze", "along"  # views of tensors
ROUNDS_TO_INFINITY = 2**1024 - 2**970  # the least number that float64 rounds to infinity

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow",
}  # fmt: skip
COMPARISON: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip


def too_many(parts: str, limit: int, span: Span) -> TooMany:
    """Return the mistake of a formula with more parts than the limit."""
    remedy = "name parts of it under `where`"
    return TooMany(span, what="the formula", limit=limit, parts=parts, remedy=remedy)


def too_deep(span: Span) -> TooMany:
    """Return the mistake of a formula that nests too deeply."""
    return too_many("nested operations", MAX_DEPTH, span)


def no_condition(span: Span) -> FusegenError:
    """Return the mistake of a number in the place of a condition."""
    remedy = "compare it, as in  where(x > 0, a, b)"
    return NotReal(span, what="a number", expected="a comparison", remedy=remedy)


class Reader:
    """One formula's text, the place of each node, and the names in scope."""

    def __init__(
        self, text: str, tree: ast.expr, place: Callable[[ast.AST], Span], scope: Collection[str]
    ) -> None:
        self.text, self.tree, self.place, self.scope = text, tree, place, scope

    def real(self, node: ast.expr, depth: int) -> Term:
        """Return the term of a node that has to be a real number."""
        term = self.term(node, depth)
        if isinstance(term, Apply) and OPS[term.op].boolean:
            remedy = "a comparison is used as  where(x > 0, a, b)"
            where = self.place(node)
            raise NotReal(where, what="a comparison", expected="a number", remedy=remedy)
        return term

    def condition(self, node: ast.expr, depth: int) -> Term:
        """Return the term of a node that has to be a comparison, or what may name a mask."""
        term = self.term(node, depth)
        named = isinstance(term, Name) or (isinstance(term, SpecCall) and term.spec in (VIEW, ALONG))
        if not named and not (isinstance(term, Apply) and OPS[term.op].boolean):
            raise no_condition(self.place(node))
        return term

    def term(self, node: ast.expr, depth: int) -> Term:
        """Return the term of a node."""
        span = self.place(node)
        if depth > MAX_DEPTH:
            raise too_deep(self.place(self.tree))
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return self.number(node, value)
            case ast.Name(id=name):
                return self.name(name, span)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                term = self.real(operand, depth + 1)
                if isinstance(operand, ast.Constant | ast.Name) and isinstance(term, Number):
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
        return self.picked(node, depth)

    def picked(self, node: ast.expr, depth: int) -> Term:
        """Return the term of ``u[index]`` or ``layer.weight``, the further forms of a node."""
        match node:
            case ast.Attribute(value=ast.Name(id=layer), attr=part) if f"{layer}.{part}" in self.scope:
                return Name(f"{layer}.{part}", self.place(node))
            case ast.Subscript(value=value, slice=ast.Name(id=name)):
                span = self.place(node)
                return SpecCall(GATHER, (self.real(value, depth + 1), self.name(name, span)), (), span)
        raise foreign(node, self.place(node))

    def number(self, node: ast.Constant, value: float) -> Number:
        """Return the exact number that a literal writes."""
        text = (ast.get_source_segment(self.text, node) or "").replace("_", "")
        if isinstance(value, int):
            fits, exact = value < ROUNDS_TO_INFINITY, Fraction(value)
        else:
            mantissa = text.lower().split("e")[0].strip("0.")
            fits = math.isfinite(value) and (value != 0 or not mantissa)
            exact = Fraction(text) if fits and mantissa else Fraction(0)
        if not fits:
            shown = text if len(text) <= 40 else f"{text[:40]}..."
            raise NumberOutOfRange(self.place(node), what=f"the number {shown}")
        return Number(exact, self.place(node))

    def name(self, name: str, span: Span) -> Term:
        """Return the term of a name."""
        if name in self.scope:
            return Name(name, span)
        if name == INFINITE:
            return Number(INFINITY, span)
        if name in CONSTANTS:
            return Apply(name, (), span)
        if name in FUNCTIONS:
            what = f"the function {name} without its arguments"
            remedy = f"write  {FUNCTIONS[name].signature}"
            raise NotReal(span, what=what, expected="a number", remedy=remedy)
        known = [*self.scope, *CONSTANTS]
        hint = nearest(name, known, "declare it under `inputs`, `params` or `where`")
        raise UnknownName(span, name=name, near=hint)

    def call(self, name: str, node: ast.Call, depth: int) -> Term:
        """Return the term of a call."""
        span = self.place(node)
        self.check_arguments(node)
        if name in POOLINGS:
            return pooling_call(node, self.place, lambda arg: self.real(arg, depth + 1))
        if name not in FUNCTIONS or (name in EXTENDED and len(node.args) + len(node.keywords) > 1):
            return self.spec_call(name, node, depth)
        op, values = self.bind(FUNCTIONS[name], node)
        readers = [self.condition if arg == "condition" else self.real for arg in op.args]
        args = tuple(read(value, depth + 1) for read, value in zip(readers, values, strict=True))
        return Apply(op.name, args, span)

    def spec_call(self, name: str, node: ast.Call, depth: int) -> SpecCall:
        """Return the term of a call of a spec, or of what may be one.

        Raises:
            UnknownFunction: an argument is no formula, and the language lacks functions of this name.
        """
        span = self.place(node)
        name, written = form(name, node, self.place)
        try:
            args = tuple(self.real(arg, depth + 1) for arg in node.args)
            keywords = tuple((k.arg or "", self.real(k.value, depth + 1)) for k in written)
        except NotAFormula:
            if name not in absent.LACKS:
                raise
            near = absent.remedy(name, ())
            raise UnknownFunction(span, name=name, lack=absent.lack(name), near=near) from None
        return SpecCall(name, args, keywords, span)

    def check_arguments(self, node: ast.Call) -> None:
        """Refuse arguments that would be unpacked."""
        starred: list[ast.expr] = [part for part in node.args if isinstance(part, ast.Starred)]
        starred += [keyword.value for keyword in node.keywords if keyword.arg is None]
        for part in starred:
            problem = "a starred argument has no place in it"
            raise NotAFormula(self.place(part), problem=problem, remedy=REMEDY)

    def bind(self, op: Op, node: ast.Call) -> tuple[Op, Sequence[ast.expr]]:
        """Return the row that a call means and its arguments in that row's order."""
        given = dict(zip(op.args, node.args, strict=False))
        for keyword in node.keywords:
            name = argument_named(str(keyword.arg), op.args)
            if name not in op.args or name in given:
                mistake = RepeatedArgument if name in given else UnknownArgument
                where = self.place(keyword)
                raise mistake(where, name=op.name, argument=name, signature=op.signature)
            given[name] = keyword.value
        row = called(op, given)
        if row and len(node.args) <= len(op.args):
            return row, [given[arg] for arg in op.args if arg in given]
        number = len(node.args) + len(node.keywords)
        found = f"{number or 'none'} {'is' if number < 2 else 'are'}"
        where, takes = self.place(node), argument_count(op)
        raise WrongArity(where, name=op.name, expected=takes, found=found, signature=op.signature)
