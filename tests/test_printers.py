"""Printed text reads back as the same expression, literals as the same value, notation as mathematics."""

from __future__ import annotations

import ast
import math
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from fusegen.errors import Span
from fusegen.ir import Call, Const, Device, Expr, Kernel, Let, Math, Ref, held
from fusegen.library import Library
from fusegen.lower import lower
from fusegen.ops import COMPARE, OPS
from fusegen.parse import parse_spec
from fusegen.parse.formula import parse_formula
from fusegen.printers import dump
from fusegen.printers.cpp import CppPrinter, literal, support
from fusegen.printers.notation import notation, number
from fusegen.printers.notation import term as written
from fusegen.term import Program

INFIX: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Lt: "lt", ast.LtE: "le",
    ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip
FUNCTIONS = [row.name for row in OPS.values() if row.written and row.args and row.name != "where"]
ARITHMETIC = ["add", "sub", "mul", "div"]
COMPARISONS = [row.name for row in OPS.values() if row.strength == COMPARE]


def kernel(result: Expr, device: Device = Device.CPU, kind: Math = Math.FLOAT) -> Kernel:
    """A kernel of two inputs that gives `result`."""
    return Kernel("gate", device, kind, ("x", "y"), ("a",), (), result)


# --- a small reader of C++ expressions ----------------------------------------------------------------


def read(text: str, device: Device, kind: Math) -> Expr:
    """The expression that a C++ text denotes: select by hand, everything tighter by Python's grammar."""
    return _Reader(device, kind).expression(text)


class _Reader:
    def __init__(self, device: Device, kind: Math) -> None:
        self.prefix = "std::" if device is Device.CPU else ""
        self.kind = kind

    def expression(self, text: str) -> Expr:
        text = text.replace(f"{self.kind.value}(INFINITY)", "1e999" + self.suffix())
        text = re.sub(r"rounded<T>\(", "rounded(", text).replace(self.prefix, "")
        tree = ast.parse(_selections(text), mode="eval").body
        return self.node(tree)

    def suffix(self) -> str:
        return "f" if self.kind is Math.FLOAT else ""

    def node(self, tree: ast.expr) -> Expr:
        match tree:
            case ast.Name(id=name):
                return Ref(name)
            case ast.Subscript(value=ast.Name(id="literal"), slice=ast.Constant(value=str(text))):
                return Const(self.literal(text))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Subscript() as constant):
                value = self.node(constant)
                assert isinstance(value, Const)
                return Const(-value.value)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return Call("neg", (self.node(operand),))
            case ast.BinOp(left=left, op=op, right=right):
                return Call(INFIX[type(op)], (self.node(left), self.node(right)))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return Call(INFIX[type(op)], (self.node(left), self.node(right)))
            case ast.Call(func=ast.Name(id=name), args=args):
                return Call(_row(name), tuple(map(self.node, args)))
        raise AssertionError(ast.unparse(tree))

    def literal(self, text: str) -> float:
        """A literal as a C++ compiler reads it, straight into its own type."""
        assert text.endswith("f") == (self.kind is Math.FLOAT), text
        value = text.removesuffix("f")
        assert set(value) & set(".e"), f"{text} would be an integer"
        with np.errstate(over="ignore"):
            return float(np.float32(value)) if self.kind is Math.FLOAT else float(value)


def _row(name: str) -> str:
    known = {row.libm: row.name for row in OPS.values() if row.libm}
    return known.get(name, name)


def _selections(text: str) -> str:
    """The text with each literal marked and each `c ? a : b` written as where(c, a, b)."""
    tokens = re.findall(r"\d[\d.]*(?:e[-+]?\d+)?f?|\.\d+f?|\w+|[<>=!]=|\S", text)
    tokens = [f"literal[{token!r}]" if token[0].isdigit() else token for token in tokens]
    found, rest = _select(tokens)
    assert not rest, text
    return found


def _select(tokens: list[str]) -> tuple[str, list[str]]:
    condition, rest = _simple(tokens)
    if rest[:1] != ["?"]:
        return condition, rest
    chosen, rest = _select(rest[1:])
    assert rest[0] == ":"
    other, rest = _select(rest[1:])
    return f"where({condition}, {chosen}, {other})", rest


def _simple(tokens: list[str]) -> tuple[str, list[str]]:
    """Tokens up to a ?, a : or a comma outside parentheses."""
    found: list[str] = []
    while tokens and tokens[0] not in ("?", ":", ",", ")"):
        token, *tokens = tokens
        found.append(token)
        if token == "(":
            inner, tokens = _select(tokens)
            found.append(inner)
            while tokens[0] == ",":
                inner, tokens = _select(tokens[1:])
                found += [",", inner]
            assert tokens[0] == ")"
            found.append(tokens[0])
            tokens = tokens[1:]
    return " ".join(found), tokens


# --- expressions ---------------------------------------------------------------------------------------


def constants(kind: Math) -> st.SearchStrategy[Const]:
    return st.floats(allow_nan=False).map(lambda value: Const(held(value, kind)))


def expressions(kind: Math) -> st.SearchStrategy[Expr]:
    """Expressions of every row, nested at will."""
    leaves: st.SearchStrategy[Expr] = st.sampled_from([Ref("x"), Ref("y"), Ref("a")]) | constants(kind)

    def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        def call(op: str) -> st.SearchStrategy[Expr]:
            return st.tuples(*(inner for _ in OPS[op].args)).map(lambda args: _called(op, args))

        condition = st.sampled_from(COMPARISONS).flatmap(call)
        where = st.tuples(condition, inner, inner).map(lambda args: Call("where", args))
        names = st.sampled_from(ARITHMETIC * 4 + ["neg", "neg", "rounded"] + FUNCTIONS)
        return names.flatmap(call) | where

    return st.recursive(leaves, grown, max_leaves=14)


def _called(op: str, args: tuple[Expr, ...]) -> Expr:
    """A call; a negated constant is a constant, as the simplifier leaves it and as it reads back."""
    match op, args:
        case "neg", (Const(value),):
            return Const(-value)
    return Call(op, args)


@pytest.mark.parametrize("kind", Math)
@pytest.mark.parametrize("device", Device)
@settings(max_examples=50)
@given(data=st.data())
def test_a_printed_expression_reads_back_as_itself(device: Device, kind: Math, data: st.DataObject) -> None:
    expr = data.draw(expressions(kind))
    text = CppPrinter(kernel(expr, device, kind)).expr(expr)
    assert repr(read(text, device, kind)) == repr(expr), text  # equality would not tell -0.0 from 0.0


def test_the_reader_tells_groupings_apart() -> None:
    for text in ("x - (y - a)", "x / y / a", "-(x + y)", "x > y ? a : y > a ? x : y", "std::exp(-(-x))"):
        printed = CppPrinter(kernel(Ref("x"))).expr(read(text, Device.CPU, Math.FLOAT))
        assert printed == text
    assert read("x - y - a", Device.CPU, Math.FLOAT) != read("x - (y - a)", Device.CPU, Math.FLOAT)


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        ("x * clamp(x + 3, 0, 6) / 6", "x * clamp(x + 3.0f, 0.0f, 6.0f) / 6.0f"),
        ("x - (y - 1)", "x - (y - 1.0f)"),
        ("(x - y) - 1", "x - y - 1.0f"),
        ("x * (y / 2)", "x * (y / 2.0f)"),
        ("(x + y) * -x", "(x + y) * -x"),
        ("-(-x)", "-(-x)"),
        ("x - -1", "x - -1.0f"),
        ("where(x > y, x, y + 1)", "x > y ? x : y + 1.0f"),
        ("1 + where(x > y, x, y)", "1.0f + (x > y ? x : y)"),
        ("exp(where(x > y, x, y))", "std::exp(x > y ? x : y)"),
        ("where(x > y, x, where(x > 1, y, 1))", "x > y ? x : x > 1.0f ? y : 1.0f"),
        ("abs(x) + minimum(x, y)", "std::fabs(x) + minimum(x, y)"),
    ],
)
def test_an_expression_has_the_fewest_parentheses(formula: str, text: str) -> None:
    program = Program(("x", "y"), (), (), parsed(formula))
    lowered = lower("gate", program, Device.CPU, Math.FLOAT)
    assert CppPrinter(lowered).expr(lowered.result) == text


@given(st.floats(allow_nan=False))
def test_a_literal_reads_back_bit_for_bit(value: float) -> None:
    for kind, code in ((Math.FLOAT, "<f"), (Math.DOUBLE, "<d")):
        one = held(value, kind)
        text = literal(one, kind)
        if math.isinf(one):
            assert text == ("-" if one < 0 else "") + f"{kind.value}(INFINITY)"
            continue
        assert text.endswith("f") == (kind is Math.FLOAT)
        with np.errstate(over="ignore"):
            back = float(np.float32(text[:-1])) if kind is Math.FLOAT else float(text)
        assert struct.pack(code, back) == struct.pack(code, one)
        assert set(text) & set(".e"), "an integer would divide as one"


@pytest.mark.parametrize(
    ("value", "single", "double"),
    [
        (0.0, "0.0f", "0.0"), (-0.0, "-0.0f", "-0.0"), (6.0, "6.0f", "6.0"), (-1.0, "-1.0f", "-1.0"),
        (0.5, "0.5f", "0.5"), (1e10, "10000000000.0f", "10000000000.0"), (100.0, "100.0f", "100.0"),
        (16777216.0, "16777216.0f", "16777216.0"), (5e-324, "0.0f", "5e-324"),
        (0.1, "0.1f", "0.1"), (1 / 6, "0.16666667f", "0.16666666666666666"),
    ],
)  # fmt: skip
def test_a_literal_is_as_short_as_it_can_be(value: float, single: str, double: str) -> None:
    assert literal(held(value, Math.FLOAT), Math.FLOAT) == single
    assert literal(value, Math.DOUBLE) == double


@pytest.mark.parametrize("value", [-0.0, -1.0])
def test_two_minus_signs_never_meet_as_a_decrement(value: float) -> None:
    expr = Call("neg", (Const(value),))
    assert CppPrinter(kernel(expr)).expr(expr) == f"-({value}f)"
    assert CppPrinter(kernel(expr)).expr(Call("neg", (expr,))) == f"-(-({value}f))"


def test_a_definition_has_its_steps_as_named_lines() -> None:
    lets = (Let("u", Call("add", (Ref("x"), Const(3.0)))),)
    value = Kernel(
        "gate", Device.CUDA, Math.FLOAT, ("x", "y"), ("a",), lets, Call("mul", (Ref("u"), Ref("a")))
    )
    assert CppPrinter(value).definition() == (
        "__device__ __forceinline__ float gate_formula(float x, float y, float a) {\n"
        "  const float u = x + 3.0f;\n"
        "  return u * a;\n"
        "}"
    )


def test_a_rounded_kernel_is_a_template_over_the_element_type() -> None:
    value = kernel(Call("rounded", (Call("exp", (Ref("x"),)),)), Device.CPU, Math.DOUBLE)
    assert CppPrinter(value).definition() == (
        "template <typename T>\n"
        "inline double gate_formula(double x, double y, double a) {\n"
        "  return rounded<T>(std::exp(x));\n"
        "}"
    )


def test_the_functions_of_the_table_that_kernels_call_are_defined_once_in_its_order() -> None:
    result = Call("clamp", (Call("relu", (Ref("x"),)), Call("exp", (Ref("x"),)), Call("relu", (Ref("y"),))))
    relu, clamp = support((kernel(result), kernel(result, kind=Math.DOUBLE)))
    assert relu == "template <typename M>\ninline M relu(M x) {\n  return x < 0 ? M(0) : x;\n}"
    assert clamp.startswith("template <typename M>\ninline M clamp(M x, M min, M max) {\n")


# --- notation ------------------------------------------------------------------------------------------


def parsed(text: str) -> Any:
    """The term that a formula over x and y denotes."""
    return parse_formula(text, Span("formula", 1, 1, text).after, ["x", "y"])


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        ("x * clamp(x + 3, 0, 6) / 6", "x · min(max(x + 3, 0), 6) / 6"),
        ("x - (y - 1)", "x - (y - 1)"),
        ("x / (y * 2)", "x / (y · 2)"),
        ("(x + 1) ** 2 + x ** -1", "(x + 1)² + x⁻¹"),
        ("x ** 0.5", "pow(x, 0.5)"),
        ("x ** 12", "x¹²"),
        ("abs(x) + sqrt(x + 1)", "|x| + √(x + 1)"),
        ("where(x >= 0, x, -x) + 1", "(x if x ≥ 0 else -x) + 1"),
        ("where(x != y, 1, 2)", "1 if x ≠ y else 2"),
        ("maximum(x, y) * minimum(x, 0)", "max(x, y) · min(x, 0)"),
        ("pi * e * x", "π · e · x"),
        ("gate(x, slope=0.1)", "gate(x, slope=0.1)"),
        ("exp(-x) / (1 + exp(-x))", "exp(-x) / (1 + exp(-x))"),
        ("-(x + y)", "-(x + y)"),
        ("x * -2", "x · -2"),
        ("(-2) ** 2 * x", "(-2)² · x"),
    ],
)
def test_a_formula_is_written_as_mathematics_writes_it(formula: str, text: str) -> None:
    assert written(parsed(formula)) == text


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        ("reciprocal(x) * 2", "1 / x · 2"),
        ("2 / reciprocal(x)", "2 / (1 / x)"),
        ("2 * reciprocal(x + 1)", "2 · (1 / (x + 1))"),
        ("rsqrt(x) ** 2", "(1 / √x)²"),
        ("sqrt(x) ** 2 + sqrt(x ** 2)", "(√x)² + √(x²)"),
        ("square(x) + cube(x + 1)", "x² + (x + 1)³"),
        ("(x ** 2) ** 3 - x ** 2 ** 3", "(x²)³ - pow(x, 2³)"),
        ("-x ** 2", "-(x²)"),
    ],
)
def test_a_function_that_is_written_with_symbols_keeps_its_grouping(formula: str, text: str) -> None:
    assert written(parsed(formula)) == text


def test_a_number_is_written_in_the_fewest_digits() -> None:
    assert [number(v) for v in (3.0, 0.1, -2.5, 1e-7, 1e22)] == ["3", "0.1", "-2.5", "1e-07", "1e+22"]


def test_a_spec_is_written_on_one_line_with_its_named_steps() -> None:
    head = "name: gate\nsummary: s\n"
    spec = parse_spec(f"{head}where: {{u: x + 3}}\nformula: x * u / 6\n", "gate.yaml")
    assert notation(spec) == "y = x · u / 6,  u = x + 3"
    spec = parse_spec(f"{head}chain: [relu, 'hardtanh(max_val=2)', x * x]\n", "gate.yaml")
    assert notation(spec) == "x = relu(x),  x = hardtanh(x, max_val=2),  y = x · x"


def test_a_kernel_is_dumped_with_every_constant_in_full() -> None:
    value = kernel(Call("mul", (Ref("x"), Const(held(0.1, Math.FLOAT)))))
    assert dump.kernel(value) == "cpu float gate(x, y, a)\n  return mul(x, 0x1.99999a0000000p-4)"


def test_every_committed_spec_has_a_notation_that_names_its_steps(
    golden: Callable[[str, str], None],
) -> None:
    library = Library(ROOT / "specs")
    specs = [library(name) for name in library.names()]
    golden("notation.txt", "".join(f"{spec.name}: {notation(spec)}\n" for spec in specs if spec))
