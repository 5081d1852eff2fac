"""The C++ functions of a kernel: what is one text, and what has a name of its own."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusegen.algebra.limits.finite_names import renamed
from fusegen.codegen.printers.both import for_both, split
from fusegen.codegen.printers.cpp import CppPrinter
from fusegen.codegen.printers.function_text import FLOAT_SUFFIX, functions
from fusegen.core.ir import Call, Const, Expr, Kernel, Let, Math, Ref, Word, round_to
from fusegen.core.targets import Device
from fusegen.core.term import Let as Named
from fusegen.core.term import Name, Number, Program, call

INFINITE = Const(float("inf"))
X, Y = Ref("x"), Ref("y")
SUM, PRODUCT = Call("add", (X, Y)), Call("mul", (X, Y))


def kernel(result: Expr, device: Device = Device.CPU, kind: Math = Math.FLOAT) -> Kernel:
    return Kernel("gate", device, kind, ("x", "y"), (), (), (result,))


def kernels(cpu: dict[Math, Expr], cuda: dict[Math, Expr]) -> dict[Device, tuple[Kernel, ...]]:
    of = {Device.CUDA: cuda, Device.CPU: cpu}
    return {d: tuple(kernel(expr, d, kind) for kind, expr in each.items()) for d, each in of.items()}


def heads(texts: tuple[str, ...]) -> list[str]:
    return [text[text.index("HOST_DEVICE") :].split("(")[0].removeprefix("HOST_DEVICE ") for text in texts]


SAME = {Math.FLOAT: SUM, Math.DOUBLE: SUM}
MIXED = {Math.FLOAT: PRODUCT, Math.DOUBLE: SUM}


@pytest.mark.parametrize(
    ("cpu", "cuda", "opens", "shared", "of_cuda", "of_cpu"),
    [
        (SAME, SAME, (), ["M gate"], [], []),
        (SAME, MIXED, (), ["M gate"], ["float gate"], []),
        (SAME, MIXED, (Math.FLOAT,), ["M gate"], [f"M gate{FLOAT_SUFFIX}"], []),
        (MIXED, MIXED, (), ["double gate"], ["float gate"], ["float gate"]),
        (MIXED, MIXED, (Math.FLOAT,), ["double gate"], ["M gate"], ["float gate"]),
        (MIXED, {Math.DOUBLE: SUM}, (Math.DOUBLE,), ["M gate"], [], ["float gate"]),
        (SAME, {Math.DOUBLE: PRODUCT}, (), [], ["double gate"], ["M gate"]),
        (SAME, {Math.FLOAT: SUM}, (), ["M gate"], [], []),
        ({Math.FLOAT: SUM}, {Math.FLOAT: SUM}, (Math.FLOAT,), ["M gate"], [], []),
        ({Math.FLOAT: SUM}, {Math.FLOAT: PRODUCT}, (), [], ["float gate"], ["float gate"]),
    ],
)
def test_a_text_stands_once(
    cpu: dict[Math, Expr],
    cuda: dict[Math, Expr],
    opens: tuple[Math, ...],
    shared: list[str],
    of_cuda: list[str],
    of_cpu: list[str],
) -> None:
    found = functions(kernels(cpu, cuda), opens)
    assert heads(found.shared) == shared
    assert heads(found.own[Device.CUDA]) == of_cuda
    assert heads(found.own[Device.CPU]) == of_cpu
    named = f"out[0] = gate{FLOAT_SUFFIX}(in[0], in[1])" if FLOAT_SUFFIX in "".join(of_cuda) else ""
    assert found.float_call == {Device.CUDA: named, Device.CPU: ""}


FRACTIONS = st.fractions(Fraction(1, 10**6), 10**6)


def words(value: Fraction, kind: Math) -> tuple[float, float]:
    hi = round_to(float(value), kind)
    return hi, round_to(float(value - Fraction(hi)), kind)


@given(FRACTIONS)
def test_the_words_of_double_give_those_of_float(value: Fraction) -> None:
    """But for a second word whose digits behind those of both lie next to a tie."""
    found, exact = split(*words(value, Math.DOUBLE)), words(value, Math.FLOAT)
    assert found[0] == round_to(float(value), Math.FLOAT)
    assert abs(found[1] - exact[1]) <= abs(exact[1]) * 2.0**-22
    product = [
        Call("mul", (X, Call("words", tuple(map(Const, pair)), Word.DOUBLE)))
        for pair in (exact, words(value, Math.DOUBLE))
    ]
    both = for_both(kernel(product[0]), kernel(product[1], kind=Math.DOUBLE))
    assert both is not None
    text = CppPrinter(both, generic=True).definition()
    assert ("number<M>(" in text) is (found == exact)
    assert ("double_word(constant<M>(" in text or "double_word(M(" in text) is (found != exact)


@pytest.mark.parametrize(
    "other",
    [
        Call("sub", (X, Const(0.5))),
        Call("add", (Y, Const(0.5))),
        Call("add", (X, Y)),
        Call("add", (X, INFINITE)),
        Call("add", (X, Call("words", (Const(0.5), Const(1e-20)), Word.DOUBLE))),
    ],
)
def test_kernels_that_differ_in_more_than_numbers_have_two_texts(other: Expr) -> None:
    single = kernel(Call("add", (X, Const(0.5))))
    assert for_both(single, kernel(other, kind=Math.DOUBLE)) is None
    assert for_both(single, replace(single, math=Math.DOUBLE)) is not None


def test_steps_of_other_names_or_types_have_two_texts() -> None:
    single = replace(kernel(Ref("t")), lets=(Let("t", SUM),))
    double = replace(single, math=Math.DOUBLE)
    assert for_both(single, double) == double
    assert for_both(single, replace(double, lets=(Let("u", SUM),))) is None
    assert for_both(single, replace(double, lets=(Let("t", replace(SUM, word=Word.DOUBLE)),))) is None


# --- guards ---------------------------------------------------------------------------------------------

SIZE = Const(2.0**126)
REPLACED = Call("where", (
    Call("eq", (X, INFINITE)), SIZE,
    Call("where", (Call("eq", (X, Const(-float("inf")))), Const(-(2.0**126)), X)),
))  # fmt: skip
AT_INFINITY = Call("eq", (Call("abs", (X,)), INFINITE))
HUGE = Call("gt", (Call("abs", (Y,)), Const(2.0**64)))
GROWN = Call("where", (HUGE, Call("mul", (Y, INFINITE)), Y))
RESTORED = Call("where", (AT_INFINITY, GROWN, Y))
BESIDE = Call("where", (Call("eq", (Ref("finite_x"), X)), Y, GROWN))


def sized(least: float) -> Call:
    """The condition that y is 0 or of a size from the least one to 2^40."""
    size = Call("abs", (Y,))
    zero, clamped = Call("eq", (size, Const(0.0))), Call("clamp", (size, Const(least), Const(2.0**40)))
    return Call("eq", (size, Call("where", (zero, Const(0.0), clamped))))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (REPLACED, "replace_infinity(x, 0x1p126f)"),
        (RESTORED, "restore_infinity<float>(y, x)"),
        (replace(RESTORED, word=Word.DOUBLE), "restore_infinity<Promoted<float>>(y, x)"),
        (BESIDE, "restore_replaced<float>(y, finite_x, x)"),
        (sized(2.0**-40), "is_ordinary(y)"),
        (sized(0.5), "fabs(y) == (fabs(y) == 0.0f ? 0.0f : clamp(fabs(y), 0.5f, 1099511600000.0f))"),
        (Call("where", (AT_INFINITY, Y, Y)), "fabs(x) == float(INFINITY) ? y : y"),
        (Call("where", (Call("eq", (X, INFINITE)), SIZE, X)), "x == float(INFINITY) ? 8.507059e+37f : x"),
    ],
)
def test_a_guard_is_one_call(value: Call, text: str) -> None:
    assert CppPrinter(kernel(value)).expr(value) == text


def test_a_guard_of_a_template_takes_its_type() -> None:
    both = Call("add", (REPLACED, replace(RESTORED, word=Word.DOUBLE)))
    text = CppPrinter(kernel(both, kind=Math.DOUBLE), generic=True).expr(both)
    assert text == "replace_infinity(x, M(0x1p126)) + restore_infinity<Promoted<M>>(y, x)"


# --- names ----------------------------------------------------------------------------------------------


def test_a_guarded_value_has_one_prefix_and_a_number() -> None:
    one = Number(Fraction(1))
    lets = (
        Named("step1", Name("x") + one),
        Named("finite_step11", call("exp", Name("step1"))),
        Named("finite_finite_step11", call("exp", Name("finite_step11"))),
        Named("finite", Name("finite_finite_step11")),
        Named("finite1", call("exp", Name("finite"))),
        Named("finite_finite_x", call("exp", Name("finite1"))),
    )
    program = Program(("x",), (), lets, (Name("finite_finite_x"),))
    found = renamed(program, {"step1"})
    assert [let.name for let in found.lets] == [
        "step1", "finite_step1", "finite_step1_2", "finite", "finite_x",
    ]  # fmt: skip
    assert found.results == (Name("finite_x"),)
    assert found.lets[3].term == call("exp", Name("finite_step1_2"))
