"""Printed text reads back as the same expression, literals as the same value, notation as mathematics."""

import ast
import math
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from budget import examples
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from parsed import parsed

from fusegen.codegen.module_text import autocasts
from fusegen.codegen.printers import dump
from fusegen.codegen.printers.both import for_both
from fusegen.codegen.printers.cpp import CppPrinter, uniform
from fusegen.codegen.printers.families import headers
from fusegen.codegen.printers.function_text import definitions
from fusegen.codegen.printers.literals import literal
from fusegen.codegen.printers.notation import notation, number
from fusegen.codegen.printers.notation import term as written
from fusegen.codegen.printers.pytorch import statements
from fusegen.core import term
from fusegen.core.ir import Body, Call, Const, Expr, Kernel, Let, Math, Ref, Word, round_to
from fusegen.core.ops import OPS
from fusegen.core.ops.row import COMPARE
from fusegen.core.targets import Device
from fusegen.core.term import Name, Number, Program, SpecCall, Term, call
from fusegen.language.library import Library
from fusegen.language.parse import parse_spec
from fusegen.lower import lower

INFIX: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Lt: "lt", ast.LtE: "le",
    ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip
FUNCTIONS = [row.name for row in OPS.values() if row.written and row.args and row.name != "where"]
ARITHMETIC = ["add", "sub", "mul", "div"]
COMPARISONS = [row.name for row in OPS.values() if row.strength == COMPARE]


def kernel(result: Expr, device: Device = Device.CPU, kind: Math = Math.FLOAT) -> Kernel:
    return Kernel("gate", device, kind, ("x", "y"), ("a",), (), (result,))


# --- a small reader of C++ expressions ----------------------------------------------------------------


def read(text: str, device: Device, kind: Math) -> Expr:
    """The expression that a C++ text denotes: select by hand, everything tighter by Python's grammar."""
    return _Reader(device, kind).expression(text)


class _Reader:
    def __init__(self, device: Device, kind: Math) -> None:
        self.kind = kind

    def expression(self, text: str) -> Expr:
        text = text.replace(f"{self.kind.value}(INFINITY)", "1e999" + self.suffix())
        text = re.sub(r"round_to_storage<T>\(", "round_to_storage(", text)
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
    return st.floats(allow_nan=False).map(lambda value: Const(round_to(value, kind)))


def expressions(kind: Math) -> st.SearchStrategy[Expr]:
    leaves: st.SearchStrategy[Expr] = st.sampled_from([Ref("x"), Ref("y"), Ref("a")]) | constants(kind)

    def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        def call(op: str) -> st.SearchStrategy[Expr]:
            return st.tuples(*(inner for _ in OPS[op].args)).map(lambda args: _called(op, args))

        condition = st.sampled_from(COMPARISONS).flatmap(call)
        where = st.tuples(condition, inner, inner).map(lambda args: Call("where", args))
        names = st.sampled_from(ARITHMETIC * 4 + ["neg", "neg", "round_to_storage"] + FUNCTIONS)
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
@settings(max_examples=examples(50))
@given(data=st.data())
def test_a_printed_expression_reads_back_as_itself(device: Device, kind: Math, data: st.DataObject) -> None:
    expr = data.draw(expressions(kind))
    text = CppPrinter(kernel(expr, device, kind)).expr(expr)
    assert repr(read(text, device, kind)) == repr(expr), text  # equality would not tell -0.0 from 0.0


def test_the_reader_tells_groupings_apart() -> None:
    for text in ("x - (y - a)", "x / y / a", "-(x + y)", "x > y ? a : y > a ? x : y", "exp(-(-x))"):
        printed = CppPrinter(kernel(Ref("x"))).expr(read(text, Device.CPU, Math.FLOAT))
        assert printed == text
    assert read("x - y - a", Device.CPU, Math.FLOAT) != read("x - (y - a)", Device.CPU, Math.FLOAT)


@pytest.mark.together
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
        ("exp(where(x > y, x, y))", "exp(x > y ? x : y)"),
        ("where(x > y, x, where(x > 1, y, 1))", "x > y ? x : x > 1.0f ? y : 1.0f"),
        ("abs(x) + minimum(x, y)", "fabs(x) + minimum(x, y)"),
    ],
)
def test_an_expression_has_the_fewest_parentheses(formula: str, text: str) -> None:
    program = Program(("x", "y"), (), (), (parsed(formula),))
    lowered = lower("gate", program, Device.CPU, Math.FLOAT)
    assert CppPrinter(lowered).expr(lowered.results[0]) == text


@given(st.floats(allow_nan=False))
def test_a_literal_reads_back_bit_for_bit(value: float) -> None:
    for kind, code in ((Math.FLOAT, "<f"), (Math.DOUBLE, "<d")):
        one = round_to(value, kind)
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
    assert literal(round_to(value, Math.FLOAT), Math.FLOAT) == single
    assert literal(value, Math.DOUBLE) == double


@pytest.mark.parametrize("value", [-0.0, -1.0])
def test_two_minus_signs_never_meet_as_a_decrement(value: float) -> None:
    expr = Call("neg", (Const(value),))
    assert CppPrinter(kernel(expr)).expr(expr) == f"-({value}f)"
    assert CppPrinter(kernel(expr)).expr(Call("neg", (expr,))) == f"-(-({value}f))"


STEP = (Let("u", Call("add", (Ref("x"), Const(3.0)))),)
PRODUCT = Call("mul", (Ref("u"), Ref("a")))


def test_a_definition_has_its_steps_as_named_lines() -> None:
    value = Kernel("gate", Device.CUDA, Math.FLOAT, ("x", "y"), ("a",), STEP, (PRODUCT,))
    assert CppPrinter(value).definition() == (
        "HOST_DEVICE float gate(float x, float y, float a) {\n"
        "  const float u = x + 3.0f;\n  return u * a;\n}"
    )
    assert CppPrinter(value).element() == "out[0] = gate(in[0], in[1], p.a)"


def test_a_long_run_of_calls_is_broken_behind_a_parenthesis() -> None:
    inner: Expr = Ref("a_name")
    for _ in range(16):
        inner = Call("clamp_to_lowest", (Call("tanh", (inner,)),))
    text = CppPrinter(Kernel("f", Device.CUDA, Math.FLOAT, ("a_name",), (), (), (inner,))).definition()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 116
    assert len(lines) > 4
    written = "return " + "clamp_to_lowest(tanh(" * 16 + "a_name" + ")" * 32 + ";"
    assert "".join(line.strip() for line in lines[1:-1]) == written


def test_a_definition_of_several_values_sets_them_in_their_order() -> None:
    results = (PRODUCT, Ref("u"), Ref("y"), PRODUCT)
    value = Kernel("gate", Device.CPU, Math.DOUBLE, ("x", "y"), ("a",), STEP, results)
    assert CppPrinter(value).definition() == (
        "HOST_DEVICE void gate(double x, double y, double a, double* out) {\n"
        "  const double u = x + 3.0;\n"
        "  out[0] = out[3] = u * a;\n"
        "  out[1] = u;\n"
        "  out[2] = y;\n"
        "}"
    )
    assert CppPrinter(value).element() == "gate(in[0], in[1], p.a, out)"


def test_a_rounded_kernel_is_a_template_over_the_element_type() -> None:
    value = kernel(Call("round_to_storage", (Call("exp", (Ref("x"),)),)), Device.CPU, Math.DOUBLE)
    assert CppPrinter(value).definition() == (
        "template <typename T>\n"
        "HOST_DEVICE double gate(double x, double y, double a) {\n"
        "  return round_to_storage<T>(exp(x));\n"
        "}"
    )
    assert CppPrinter(value).element() == "out[0] = gate<T>(in[0], in[1], p.a)"


def test_a_scalar_of_the_host_is_a_statement_in_double() -> None:
    middle = Call("div", (Call("add", (Ref("a"), Ref("b"))), Const(6.0)))
    assert uniform(Let("middle", middle)) == "const double middle = (a + b) / 6.0;"
    assert uniform(Let("u", Call("exp", (Ref("a"),)))) == "const double u = std::exp(a);"


def test_what_the_compiler_adds_is_written_as_a_function() -> None:
    product = Call("mul", (Call("fma", (Ref("x"), Ref("y"), Const(1.0))), Ref("a")))
    assert CppPrinter(kernel(product)).expr(product) == "fma(x, y, 1.0f) * a"
    assert CppPrinter(kernel(product, Device.CUDA)).expr(product) == "fma(x, y, 1.0f) * a"
    quotient = Call("quotient", (Call("add", (Ref("x"), Ref("y"))), Const(3.0)))
    assert CppPrinter(kernel(quotient)).expr(quotient) == "quotient(x + y, 3.0f)"


def test_a_generic_definition_is_a_template_over_the_math_type() -> None:
    value = Kernel("gate", Device.CUDA, Math.FLOAT, ("x",), ("a",), STEP, (PRODUCT,))
    assert CppPrinter(value, generic=True).definition() == (
        "template <typename M>\nHOST_DEVICE M gate(M x, M a) {\n"
        "  const M u = x + M(3.0f);\n  return u * a;\n}"
    )
    assert CppPrinter(value, generic=True).element() == CppPrinter(value).element()
    double = Kernel("gate", Device.CUDA, Math.DOUBLE, ("x",), ("a",), STEP, (PRODUCT,))
    assert "  const M u = x + M(3);\n" in CppPrinter(double, generic=True).definition()


def test_a_kernel_includes_the_headers_that_define_what_it_calls() -> None:
    result = Call("clamp", (Call("relu", (Ref("x"),)), Call("exp", (Ref("x"),)), Call("ndtr", (Ref("y"),))))
    assert headers((kernel(result),)) == ("exponential", "normal", "selections")
    assert headers((kernel(result, Device.CUDA),)) == ("normal", "selections")


def test_kernels_that_compute_the_same_are_one_function() -> None:
    third = Call("mul", (Ref("x"), Const(1 / 3)))
    rounded = Call("mul", (Ref("x"), Const(round_to(1 / 3, Math.FLOAT))))
    [both] = definitions((kernel(rounded), kernel(third, kind=Math.DOUBLE)), ())
    assert both == (
        "template <typename M>\nHOST_DEVICE M gate(M x, M y, M a) {\n  return x * M(0.3333333333333333);\n}"
    )
    other = definitions((kernel(Ref("x")), kernel(third, kind=Math.DOUBLE)), ())
    assert [text.split(" gate(")[0] for text in other] == ["HOST_DEVICE float", "HOST_DEVICE double"]


def test_zeros_of_different_signs_are_not_the_same() -> None:
    zero, other = (Call("add", (Ref("x"), Const(value))) for value in (0.0, -0.0))
    [both] = definitions((kernel(zero), kernel(other, kind=Math.DOUBLE)), ())
    assert "  return x + constant<M>(0.0f, -0.0);\n" in both


# --- notation ------------------------------------------------------------------------------------------


@pytest.mark.together
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
        # functions that are written with symbols
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
def test_a_formula_is_written_as_mathematics_writes_it(formula: str, text: str) -> None:
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
    value = kernel(Call("mul", (Ref("x"), Const(round_to(0.1, Math.FLOAT)))))
    assert dump.kernel(value) == "cpu float gate(x, y, a)\n  return mul(x, 0x1.99999a0000000p-4)"
    two = Kernel("gate", Device.CUDA, Math.DOUBLE, ("x",), (), STEP, (Ref("u"), Const(2.0)))
    assert dump.kernel(two) == "cuda double gate(x)\n  u := add(x, 3)\n  return u, 2"


def test_a_kernel_is_dumped_with_its_types_and_bodies() -> None:
    step = Let("u", Call("tanh", (Ref("x"),), Word.DOUBLE, Body.DOUBLE_WORD))
    of = Kernel("gate", Device.CPU, Math.DOUBLE, ("x",), (), (step,), (Ref("u", Word.DOUBLE),))
    assert dump.kernel(of) == "cpu double gate(x)\n  u: double-word := tanh<DOUBLE_WORD>(x)\n  return u"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (Call("mul", (Ref("x"), Ref("y")), Word.DOUBLE, Body.DOUBLE_WORD), "two_prod(x, y)"),
        (Call("add", (Ref("x"), Ref("y")), Word.DOUBLE, Body.DOUBLE_WORD), "two_sum(x, y)"),
        (Call("tanh", (Ref("x"),), Word.DOUBLE, Body.DOUBLE_WORD), "tanh<DOUBLE_WORD>(x)"),
        (Call("sigmoid", (Ref("x"),), body=Body.NEAR), "sigmoid<NEAR>(x)"),
        (Call("tanh", (Ref("x"),)), "tanh(x)"),
    ],
)
def test_a_call_names_its_body(call: Call, text: str) -> None:
    assert CppPrinter(kernel(call)).expr(call) == text


def test_what_gives_other_types_in_float_and_double_has_one_text() -> None:
    single, double = (
        replace(kernel(Call("sigmoid", (Ref("x"),), word)), device=Device.CUDA, math=kind)
        for kind, word in ((Math.FLOAT, Word.SINGLE), (Math.DOUBLE, Word.DOUBLE))
    )
    assert for_both(single, double) is not None
    named = Call("sigmoid", (Ref("x"),), Word.DOUBLE, Body.DOUBLE_WORD)
    assert for_both(replace(single, results=(named,)), double) is None


def test_a_program_is_dumped_with_each_of_its_results() -> None:
    program = Program(
        ("x", "y"), ("a",), (term.Let("u", parsed("x + 3")),), (parsed("y / 2"), parsed("-x"))
    )
    assert dump.program(program) == "given x, y, a\nu = x + 3\nreturn y / 2, -x"


def test_every_committed_spec_has_a_notation_that_names_its_steps(
    golden: Callable[[str, str], None],
) -> None:
    library = Library(ROOT / "specs")
    specs = [library(name) for name in library.names()]
    golden("notation.txt", "".join(f"{spec.name}: {notation(spec)}\n" for spec in specs if spec))


# --- PyTorch -------------------------------------------------------------------------------------------


def eager(*results: Term, lets: tuple[term.Let, ...] = ()) -> Program:
    return Program(("x", "y"), ("a",), lets, results)


@pytest.mark.together
@pytest.mark.parametrize(
    ("formula", "text"),
    [
        ("x - (y - 1)", "x - (y - 1)"),
        ("(x - y) - 1", "x - y - 1"),
        ("x / (y * a)", "x / (y * a)"),
        ("-(x + y) * -x", "-(x + y) * -x"),
        ("-x ** 2", "-x ** 2"),
        ("(-x) ** 2 * y", "(-x) ** 2 * y"),
        ("x ** -y", "x ** (-y)"),
        ("(x ** y) ** 2 + x ** y ** 2", "(x ** y) ** 2 + x ** y ** 2"),
        ("cube(x + 1) * 2", "(x + 1) ** 3 * 2"),
        ("where(x > y, x, 0) + 1", "torch.where(x > y, x, 0) + 1"),
        ("clamp(x, 0, 1) + clamp(x, max=a)", "torch.clamp(x, 0, 1) + torch.clamp_max(x, a)"),
        ("relu6(x) * relu(y)", "nn.functional.relu6(x) * torch.relu(y)"),
        ("softplus(x) + pi * x - e", "nn.functional.softplus(x) + torch.pi * x - torch.e"),
        ("exp(a) * x", "torch.exp(torch.tensor(a, dtype=torch.float64)).item() * x"),
        ("x * (2 * a + 1) / 3", "x * (2 * a + 1) / 3"),
        ("x * (1 / a)", "x * (1 / torch.tensor(a, dtype=torch.float64)).item()"),
        ("x * a ** -2", "x * (torch.tensor(a, dtype=torch.float64) ** (-2)).item()"),
        ("maximum(x, 0.5)", "torch.maximum(x, torch.zeros_like(x) + 0.5)"),
        ("maximum(a - 1, y)", "torch.maximum(torch.zeros_like(y) + (a - 1), y)"),
        ("where(x > y, 1, 0)", "torch.where(x > y, torch.zeros_like(x) + 1, 0)"),
        ("where(a > 1, x, 0)", "torch.where(torch.tensor(a, dtype=torch.float64) > 1, x, 0)"),
        (
            "x * where(a > 1, a, 2)",
            "x * torch.where(torch.tensor(a, dtype=torch.float64) > 1, "
            "torch.tensor(a, dtype=torch.float64), 2).item()",
        ),
        ("clamp(a, 0, x)", "torch.clamp(torch.zeros_like(x) + a, torch.zeros_like(x) + 0, x)"),
        ("saturate(x, -a, 2)", "nn.functional.hardtanh(x, -a, 2)"),
        ("saturate(x, 0, y)", "torch.clamp(x, torch.zeros_like(x) + 0, y)"),
        ("maximum(x, y)", "torch.maximum(x, y)"),
        ("x * 1e-7 - 3e20", "x * 1e-07 - 3e+20"),
    ],
)
def test_a_formula_is_written_in_pytorchs_operations(formula: str, text: str) -> None:
    given = eager(parsed(formula, "x y a"))
    assert statements(given) == (f"return {text}",)
    numbers = {"x": torch.tensor([0.75, -2.0]), "y": torch.tensor([2.0, 3.0]), "a": 1.5}
    python = {name: getattr(torch, name, None) for name in dir(torch)} | {
        "relu6": torch.nn.functional.relu6, "softplus": torch.nn.functional.softplus,
        "maximum": lambda a, b: torch.maximum(*map(torch.as_tensor, (a, b))),
        "exp": lambda v: torch.exp(torch.as_tensor(v)), "cube": lambda v: v**3,
        "where": lambda c, a, b: torch.where(torch.as_tensor(c), a, b).float(),
        "clamp": lambda v, low=None, high=None, max=None: torch.clamp(
            torch.as_tensor(v), low, max if high is None else high
        ) if not isinstance(high, torch.Tensor) else torch.as_tensor(v).clamp(min=low).minimum(high),
        "saturate": lambda v, low, high: torch.minimum(v.clamp(min=low), torch.as_tensor(high)),
    }  # fmt: skip
    expected = eval(formula, python | numbers)
    found = eval(text, {"torch": torch, "nn": torch.nn} | numbers)
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_a_number_in_python_is_the_same_double() -> None:
    for value in (1 / 3, 2 / 3, math.sqrt(2), 0.1, 1e-300, -math.pi, 2.0**60, 12345.678901234567):
        [line] = statements(eager(call("mul", Name("x"), value)))
        assert eval(line.removeprefix("return "), {"x": 1.0}) == value


def test_a_program_is_written_line_by_line_without_eagers_rounding() -> None:
    lets = (
        term.Let("u", call("round_to_storage", call("add", Name("x"), 1))),
        term.Let("s", call("round_to_storage", call("exp", Name("a")))),
    )
    rounded = call(
        "round_to_storage", call("mul", call("round_to_storage", call("exp", Name("u"))), Name("s"))
    )
    assert statements(eager(rounded, lets=lets)) == (
        "u = x + 1",
        "s = torch.exp(torch.tensor(a, dtype=torch.float64)).item()",
        "return torch.exp(u) * s",
    )
    assert statements(eager(Name("x"), Name("y"))) == ("return x, y",)
    assert statements(eager(Name("x"), Name("y")), several=True) == ("return x, y",)
    assert statements(eager(Name("x")), several=True) == ("return x,",)


@pytest.mark.together
@pytest.mark.parametrize(
    ("called", "text"),
    [
        (SpecCall("torch.tanh", (Name("x"),)), "torch.tanh(x)"),
        (SpecCall("torch.nn.functional.relu", (Name("x"),)), "nn.functional.relu(x)"),
        (SpecCall("torch.nn.functional.celu", (Name("x"), Name("a"))), "nn.functional.celu(x, a)"),
        (SpecCall("torch.nn.functional.gelu(approximate='tanh')", (Name("x"),)),
         "nn.functional.gelu(x, approximate='tanh')"),
        (SpecCall("torch.nn.functional.glu", (Name("y"), Name("x"))),
         "nn.functional.glu(torch.stack(torch.broadcast_tensors(y, x)), 0)[0]"),
        (SpecCall("torch.nn.functional.glu", (Name("y"), Number(Fraction(2)))),
         "nn.functional.glu(torch.stack(torch.broadcast_tensors(y, torch.zeros_like(y) + 2)), 0)[0]"),
        (SpecCall("torch.nn.functional.softshrink", (Name("x"), Number(Fraction(1, 2)))),
         "nn.functional.softshrink(x, 0.5)"),
        (SpecCall("torch.nn.functional.hardtanh", (Name("x"), Number(Fraction(2)), Number(Fraction(1)))),
         "torch.clamp(x, 2, 1)"),
        (SpecCall("torch.nn.functional.hardtanh", (Name("x"), Number(Fraction(0)), Name("a"))),
         "torch.clamp(x, 0, a)"),
        (SpecCall("torch.nn.functional.leaky_relu", (Name("x"), Name("y"))),
         "torch.where(x > 0, x, x * y)"),
        (SpecCall("torch.tanh", (Name("a"),)),
         "torch.tanh(torch.tensor(a, dtype=torch.float64)).item()"),
        (SpecCall("torch.nn.functional.elu", (Name("a"), Name("a"))),
         "nn.functional.elu(torch.tensor(a, dtype=torch.float64), a).item()"),
    ],
)  # fmt: skip
def test_a_kernel_of_pytorch_is_called_by_its_name(called: SpecCall, text: str) -> None:
    assert statements(eager(call("mul", called, Name("x")))) == (f"return {text} * x",)


def test_a_function_of_pytorchs_refuses_its_scalars_where_it_is_the_whole_program() -> None:
    called = SpecCall("torch.nn.functional.softshrink", (Name("x"), Name("a")))
    whole = Program(("x",), ("a",), (), (call("round_to_storage", called),))
    assert statements(whole) == ("return nn.functional.softshrink(x, a)",)
    part = Program(("x",), ("a",), (), (call("mul", called, 2),))
    assert statements(part) == (
        "return torch.where(x > a, x - a, torch.where(x < -a, x + a, torch.where(x <= a, 0, x))) * 2",
    )


def test_autocast_is_known_by_the_operations_it_computes_in_float32() -> None:
    for formula in ("x ** y", "exp(x)", "softplus(x) * y", "relu(square(x))", "where(x > 0, log1p(y), x)"):
        assert autocasts(eager(parsed(formula))), formula
    assert autocasts(eager(Name("x"), lets=(term.Let("u", parsed("expm1(x)")),)))
    assert autocasts(eager(SpecCall("torch.nn.functional.softplus", (Name("x"), Name("a"), Name("a")))))
    for formula in ("x * y", "tanh(x)", "sigmoid(x) + sin(y)", "relu(x)"):
        assert not autocasts(eager(parsed(formula))), formula
    assert not autocasts(eager(SpecCall("torch.nn.functional.elu", (Name("x"), Name("a")))))
