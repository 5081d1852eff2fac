"""The lowering: constants as PyTorch rounds them, divisions as PyTorch does them, the rest unchanged."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusegen.core import ir
from fusegen.core.ir import Call, Const, Expr, Kernel, Math, Ref, operations, round_to
from fusegen.core.targets import Device
from fusegen.core.term import Apply, Let, Name, Number, Program, SpecCall, Term
from fusegen.errors import Span
from fusegen.language.parse.formula import parse_formula
from fusegen.lower import lower, notes, uniforms

EVERY = [(device, math) for device in Device for math in Math]


def parsed(text: str, scope: str = "x y u") -> Term:
    return parse_formula(text, Span("formula", 1, 1, text).after, scope.split())


def lowered(text: str, device: Device = Device.CPU, math: Math = Math.FLOAT) -> Expr:
    return lower("gate", Program(("x", "y"), (), (), (parsed(text),)), device, math).results[0]


@pytest.mark.parametrize(("device", "math"), EVERY)
def test_a_kernel_keeps_names_order_and_grouping(device: Device, math: Math) -> None:
    results = (parsed("relu(u) - (y - u)"), parsed("u * b", "u b"))
    program = Program(("x", "y"), ("a", "b"), (Let("u", parsed("x + (y + x)")),), results)
    assert lower("gate", program, device, math) == Kernel(
        "gate",
        device,
        math,
        inputs=("x", "y"),
        params=("b",),
        lets=(ir.Let("u", Call("add", (Ref("x"), Call("add", (Ref("y"), Ref("x")))))),),
        results=(
            Call("sub", (Call("relu", (Ref("u"),)), Call("sub", (Ref("y"), Ref("u"))))),
            Call("mul", (Ref("u"), Ref("b"))),
        ),
    )


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (Device.CUDA, Call("mul", (Ref("x"), Call("reciprocal", (Ref("a"),))))),
        (Device.CPU, Call("div", (Ref("x"), Ref("a")))),
    ],
)
def test_division_by_a_scalar_is_pytorchs(device: Device, expected: Call) -> None:
    program = Program(("x",), ("a",), (), (parsed("x / a", "x a"),))
    assert lower("scaled", program, device, Math.FLOAT).results == (expected,)


UNIFORM = Program(
    ("x",),
    ("a", "b", "c"),
    (
        Let("middle", parsed("(a + b) / 6", "a b")),
        Let("twice", parsed("middle * 2", "middle")),
        Let("u", parsed("x * twice + b", "x twice b")),
    ),
    (parsed("u + twice", "u twice"),),
)


@pytest.mark.parametrize(("device", "math"), EVERY)
def test_what_parameters_decide_is_a_scalar_of_the_kernel(device: Device, math: Math) -> None:
    kernel = lower("gate", UNIFORM, device, math)
    assert kernel.params == ("b", "twice")
    assert [let.name for let in kernel.lets] == ["u"]
    assert operations(kernel) == ("add", "mul", "add")


def test_what_parameters_decide_is_computed_in_double_by_a_true_division() -> None:
    middle = Call("div", (Call("add", (Ref("a"), Ref("b"))), Const(6.0)))
    twice = Call("mul", (Ref("middle"), Const(2.0)))
    assert uniforms(UNIFORM) == (ir.Let("middle", middle), ir.Let("twice", twice))
    tenth = Program(("x",), ("a",), (Let("u", parsed("a * 0.1", "a")),), (parsed("x * u"),))
    assert uniforms(tenth)[0].value == Call("mul", (Ref("a"), Const(0.1)))
    assert uniforms(Program(("x",), (), (), (parsed("x"),))) == ()


def test_a_division_that_becomes_a_product_is_noted_on_cuda_only() -> None:
    def divides(text: str) -> bool:
        program = Program(("x", "y"), ("a",), (), (parsed("x"), parsed(text, "x y a")))
        assert notes(program, Device.CPU) == ()
        return notes(program, Device.CUDA) != ()

    assert divides("y + x / 6")
    assert not divides("y / x")
    assert not divides("x / a")
    assert not divides("6 / x")
    assert notes(UNIFORM, Device.CUDA) == (), "the host divides"
    step = replace(UNIFORM, lets=(*UNIFORM.lets[:2], Let("u", parsed("x / 6"))))
    assert notes(step, Device.CUDA) == (
        "Division by a number is multiplication by its reciprocal, as in PyTorch on CUDA.",
    )


@pytest.mark.parametrize("math", Math)
def test_a_quotient_is_a_true_division_on_every_device(math: Math) -> None:
    third = Apply("quotient", (Name("x"), Number(Fraction(3))))
    for device in Device:
        [result] = lower("gate", Program(("x",), (), (), (third,)), device, math).results
        assert result == Call("quotient", (Ref("x"), Const(3.0)))


@given(st.fractions(-(10**9), 10**9), st.integers(-300, 300))
def test_a_constant_is_rounded_to_float64_and_then_to_the_math_type(value: Fraction, power: int) -> None:
    number = value * Fraction(2) ** power
    double = float(number)
    with np.errstate(over="ignore"):
        single = float(np.float32(double))
    program = Program(("x",), (), (), (Number(number),))
    assert lower("gate", program, Device.CPU, Math.DOUBLE).results == (Const(double),)
    assert lower("gate", program, Device.CPU, Math.FLOAT).results == (Const(single),)


@pytest.mark.parametrize("math", Math)
def test_a_division_by_a_constant_is_a_product_on_cuda_and_a_quotient_on_the_cpu(math: Math) -> None:
    inverse = Const(round_to(1.0 / 6.0, math))
    assert lowered("x / 6", Device.CUDA, math) == Call("mul", (Ref("x"), inverse))
    assert lowered("x / 6", Device.CPU, math) == Call("div", (Ref("x"), Const(6.0)))
    for device in Device:
        assert lowered("6 / x", device, math) == Call("div", (Const(6.0), Ref("x")))
        assert lowered("x / y", device, math) == Call("div", (Ref("x"), Ref("y")))


def test_the_inverse_of_a_constant_is_taken_in_double() -> None:
    for text, value in (("x / 3", 3.0), ("x / 0.1", 0.1), ("x / 50", 50.0)):
        product = lowered(text, Device.CUDA, Math.FLOAT)
        assert isinstance(product, Call)
        assert product.args[1] == Const(float(np.float32(1.0 / value)))


@given(st.floats(allow_nan=False))
def test_a_math_type_holds_the_nearest_value(value: float) -> None:
    with np.errstate(over="ignore"):
        assert round_to(value, Math.FLOAT) == float(np.float32(value))
    assert round_to(value, Math.DOUBLE) == value
    assert math.copysign(1, round_to(value, Math.FLOAT)) == math.copysign(1, value)


@pytest.mark.parametrize(("device", "math"), EVERY)
def test_every_operation_of_a_formula_is_lowered_once(device: Device, math: Math) -> None:
    text = "where(x > y, exp(x) * tanh(y), -abs(x)) + clamp(x, 0, 1)"
    kernel = lower("gate", Program(("x", "y"), (), (), (parsed(text),)), device, math)
    assert operations(kernel) == ("add", "where", "gt", "mul", "exp", "tanh", "neg", "abs", "clamp")


def test_a_call_of_a_spec_is_never_lowered() -> None:
    program = Program(("x",), (), (), (SpecCall("gate", (parsed("x"),)),))
    with pytest.raises(AssertionError, match="compose has replaced every call"):
        lower("gate", program, Device.CPU, Math.FLOAT)


def eager(op: str, left: str, right: str, device: Device) -> Expr:
    """The expression that one eager operation, followed by eager's rounding, becomes."""
    step = Apply(op, (parsed(left), parsed(right)))
    program = Program(("x", "y"), (), (), (Apply("round_to_storage", (step,)),))
    return lower("gate", program, device, Math.DOUBLE).results[0]


@pytest.mark.parametrize("op", ["add", "sub"])
def test_eager_rounds_a_number_before_it_is_added_on_the_cpu_only(op: str) -> None:
    number = Call("round_to_storage", (Const(0.5),))
    assert eager(op, "x", "0.5", Device.CPU) == Call("round_to_storage", (Call(op, (Ref("x"), number)),))
    assert eager(op, "0.5", "x", Device.CPU) == Call("round_to_storage", (Call(op, (number, Ref("x"))),))
    assert eager(op, "x", "y", Device.CPU) == Call("round_to_storage", (Call(op, (Ref("x"), Ref("y"))),))
    assert eager(op, "x", "0.5", Device.CUDA) == Call(
        "round_to_storage", (Call(op, (Ref("x"), Const(0.5))),)
    )
