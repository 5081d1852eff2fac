"""Each law of a kernel: one kernel that breaks it, and the sentence it earns."""

import math
from dataclasses import replace

import pytest

from fusegen.core.ir import Body, Call, Const, Expr, Kernel, Let, Math, Ref, Word
from fusegen.core.targets import Device
from fusegen.lower.laws import LAWS, broken_law

X, ONE = Ref("x"), Const(1.0)
SUM = Call("add", (X, ONE))
TWO = Call("words", (X, ONE), Word.DOUBLE)
GOOD = Kernel(
    "gate",
    Device.CUDA,
    Math.FLOAT,
    inputs=("x",),
    params=("a",),
    lets=(Let("u", SUM), Let("v", Call("mul", (Ref("u"), Ref("a"))))),
    results=(Call("where", (Call("gt", (X, ONE)), Ref("v"), Call("neg", (X,)))),),
)


def giving(*results: Expr) -> Kernel:
    """A kernel without steps."""
    return replace(GOOD, lets=(), results=results)


BROKEN: list[tuple[str, Kernel]] = [
    ("a kernel has at least one input", replace(GOOD, inputs=(), params=("x", "a"))),
    ("every name is declared once", replace(GOOD, params=("a", "x"))),
    ("every name is declared once", replace(GOOD, lets=(Let("x", SUM), *GOOD.lets))),
    ("every name is declared once", replace(GOOD, lets=(*GOOD.lets, Let("u", SUM)))),
    ("every name is declared before it is used", replace(GOOD, lets=GOOD.lets[::-1])),
    ("every name is declared before it is used", replace(GOOD, lets=(Let("u", Ref("u")), *GOOD.lets[1:]))),
    ("every name is declared before it is used", giving(Ref("w"))),
    ("every name is declared before it is used", giving(X, Ref("w"))),
    ("every let is used", replace(GOOD, lets=(*GOOD.lets, Let("w", SUM)))),
    ("every operation is a row of ops.ROWS", giving(Call("gelu", (X,)))),
    ("every operation is a row of ops.ROWS", giving(X, Call("gelu", (X,)))),
    ("every operation has its number of arguments", giving(Call("add", (X,)))),
    ("every operation has its number of arguments", giving(Call("clamp", (X, ONE)))),
    ("every operation has its number of arguments", giving(Call("neg", (X, X)))),
    (
        "every name has the type of its value wherever it is read",
        replace(GOOD, lets=(Let("u", TWO), *GOOD.lets[1:])),
    ),
    ("every name has the type of its value wherever it is read", giving(Ref("x", Word.DOUBLE))),
    ("what takes single words only is given no double-word value", giving(Call("sqrt", (TWO,)))),
    ("what takes single words only is given no double-word value", giving(Call("lt", (X, TWO)))),
    (
        "a call names a body that its operation has",
        giving(Call("sqrt", (X,), Word.DOUBLE, Body.DOUBLE_WORD)),
    ),
    (
        "every operation has the type that its row gives it",
        giving(Call("tanh", (X,), body=Body.DOUBLE_WORD)),
    ),
    ("every operation has the type that its row gives it", giving(Call("words", (X, ONE)))),
    ("every operation has the type that its row gives it", giving(Call("neg", (TWO,)))),
    ("every operation has the type that its row gives it", giving(Call("narrow", (TWO,), Word.DOUBLE))),
    ("no constant is NaN", giving(Call("add", (X, Const(math.nan))))),
    ("the math type holds every constant exactly", giving(Call("add", (X, Const(0.1))))),
    ("the math type holds every constant exactly", giving(Call("add", (X, Const(1e300))))),
    ("a condition stands in a where, and nowhere else", giving(Call("gt", (X, ONE)))),
    ("a condition stands in a where, and nowhere else", giving(X, Call("gt", (X, ONE)))),
    ("a condition stands in a where, and nowhere else", giving(Call("add", (Call("gt", (X, ONE)), X)))),
    ("a condition stands in a where, and nowhere else", giving(Call("where", (X, X, ONE)))),
    (
        "a condition stands in a where, and nowhere else",
        giving(Call("where", (Call("gt", (X, ONE)), Call("lt", (X, ONE)), X))),
    ),
    (
        "a condition stands in a where, and nowhere else",
        replace(GOOD, lets=(Let("u", Call("gt", (X, ONE))), *GOOD.lets[1:])),
    ),
]  # fmt: skip


@pytest.mark.together
@pytest.mark.parametrize(("sentence", "kernel"), BROKEN, ids=lambda v: v if isinstance(v, str) else "")
def test_a_broken_law_is_named(sentence: str, kernel: Kernel) -> None:
    assert broken_law(kernel) == sentence


def test_every_law_has_a_kernel_that_breaks_it() -> None:
    assert {sentence for sentence, _ in BROKEN} == {sentence for sentence, _ in LAWS}


@pytest.mark.parametrize("device", Device)
@pytest.mark.parametrize("kind", Math)
def test_a_good_kernel_keeps_every_law(device: Device, kind: Math) -> None:
    assert broken_law(replace(GOOD, device=device, math=kind)) is None


def test_a_step_may_be_used_by_any_of_several_results() -> None:
    assert broken_law(replace(GOOD, results=(*GOOD.results, Ref("u"), X))) is None
    assert broken_law(replace(GOOD, results=(X, Ref("v")))) is None
    assert broken_law(replace(GOOD, results=(X, Ref("u")))) == "every let is used"


def test_what_float_cannot_hold_double_may() -> None:
    kernel = replace(giving(Call("add", (X, Const(0.1)))), math=Math.DOUBLE)
    assert broken_law(kernel) is None
    assert broken_law(giving(Call("minimum", (X, Const(math.inf))))) is None


@pytest.mark.parametrize("device", Device)
@pytest.mark.parametrize("kind", Math)
def test_functions_are_single_word_in_float_on_cuda_alone(device: Device, kind: Math) -> None:
    single = (device, kind) == (Device.CUDA, Math.FLOAT)
    word = Word.SINGLE if single else Word.DOUBLE
    assert broken_law(replace(giving(Call("sigmoid", (X,), word)), device=device, math=kind)) is None
