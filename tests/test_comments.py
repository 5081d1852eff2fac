"""The comments of a module's C++: each note once, short rewrites, and operations that a reader knows."""

from collections import Counter
from fractions import Fraction

import pytest
import torch
from kernels import NAMES, generated

from fusegen.codegen.emit.comments import once, sentence, shortened, shows
from fusegen.codegen.emit.counts import ARITHMETIC, PARTS, counted
from fusegen.codegen.emit.includes import INCLUDE, needed
from fusegen.codegen.printers import dump
from fusegen.codegen.runtime_text import header
from fusegen.core.header_files import inlined, without_comments
from fusegen.core.instructions import INSTRUCTIONS
from fusegen.core.interval import between
from fusegen.core.ir import Call, Const, Expr, Kernel, Math, Ref
from fusegen.core.method import Pass
from fusegen.core.ops import OPS
from fusegen.core.targets import Device
from fusegen.core.term import Name, Number, Rewrite, Term, call

Notes = tuple[str, ...]
X, Y = Name("x"), Name("y")
LONG = Name("grad_of_the_first_step") * Name("slope_of_the_second_step")
ROWS: dict[str, tuple[Notes, Notes, Notes, Notes]] = {
    "none": ((), (), (), ()),
    "the same": (("A.", "B."), ("A.", "B."), ("A.", "B."), ()),
    "others": (("A.",), ("B.",), ("A.",), ("B.",)),
    "one of both": (("A.", "B."), ("B.", "C."), ("B.", "Forward. A."), ("C.",)),
    "more of the gradient": (("A.",), ("A.", "B."), ("A.",), ("B.",)),
    "more of the forward pass": (("A.", "B.", "C."), ("A.",), ("A.", "Forward. B.", "Forward. C."), ()),
    "a long one": (("word " * 30,), (), ("word " * 22 + "word", "word " * 6 + "word"), ()),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_note_on_both_passes_stands_once(row: str) -> None:
    forward, backward, first, second = ROWS[row]
    assert once(forward, backward) == {Pass.FORWARD: first, Pass.BACKWARD: second}


REWRITES: dict[str, tuple[Term, Term, str]] = {
    "a branch": (call("where", X < 0, 0, LONG), LONG, "0 if x < 0 else … is …"),
    "a factor": (LONG * X + LONG * Y, LONG * (X + Y), "… · x + … · y is … · (x + y)"),
    "a short branch": (call("where", X < 0, 0, X * Y), X * Y, "0 if x < 0 else x · y is x · y"),
    "nothing in common": (LONG, X, "grad_of_the_first_step · slope_of_the_second_step is x"),
}


def test_a_rewrite_that_fits_a_line_is_whole() -> None:
    step = Name("a_step_with_a_name_of_more_than_thirty_letters")
    value = Rewrite("times one", step * Number(Fraction(1)), step)
    assert sentence(value) == f"Times one: {step.name} · 1 is {step.name}."
    longer = Rewrite("times one", LONG * Y * Number(Fraction(1)), LONG * Y)
    assert sentence(longer) == "Times one: … · 1 is …."


def test_a_rewrite_that_reads_as_before_is_left_out() -> None:
    assert not shows(Rewrite("power 3", call("pow", X, 3), call("cube", X)))
    assert shows(Rewrite("power 1", call("pow", X, 1), X))


@pytest.mark.parametrize("row", REWRITES)
def test_a_rewrite_leaves_out_a_long_part_that_stays(row: str) -> None:
    before, after, said = REWRITES[row]
    found = shortened(Rewrite("some rule", before, after, X, between(0, 1)))
    assert dump.rewrite(found) == f"Some rule: {said}, since x lies in [0, 1]."


@pytest.mark.together
@pytest.mark.parametrize("name", NAMES)
def test_no_line_of_a_comment_stands_twice_for_a_device(name: str) -> None:
    module = generated(name)
    assert "\n// " in module.CUDA_SOURCE
    for source in (module.CUDA_SOURCE, module.CPU_SOURCE):
        lines = [line for line in source.splitlines() if line.startswith("// ")]
        assert [line for line, count in Counter(lines).items() if count > 1] == []


# Headers


def bare(*names: str) -> str:
    return without_comments(inlined("".join(map(INCLUDE.format, names)), header))


@pytest.mark.together
@pytest.mark.parametrize("name", [name for of in Device for name in of.headers.values()])
def test_the_header_of_a_method_begins_with_the_launcher(name: str) -> None:
    assert bare(name).startswith(bare("launcher.h"))


NEEDED = {
    "a header that an earlier one includes": (
        ("cuda/table.cuh", "cuda/pointwise.cuh"),
        ("cuda/table.cuh",),
    ),
    "a header that the next one begins with": (
        ("cpu/loops.h", "cpu/exponential.h", "cpu/logistic.h"),
        ("cpu/loops.h", "cpu/logistic.h"),
    ),
    "a header that would come later": (
        ("cuda/exponential.cuh", "cuda/pointwise.cuh", "cuda/plain_double_44.cuh"),
        ("cuda/exponential.cuh", "cuda/pointwise.cuh", "cuda/plain_double_44.cuh"),
    ),
    "headers that have nothing in common": (("cpu/loops.h", "octaves.h"), ("cpu/loops.h", "octaves.h")),
}


@pytest.mark.parametrize("row", NEEDED)
def test_a_header_that_others_include_in_its_place_is_not_named(row: str) -> None:
    headers, kept = NEEDED[row]
    assert needed(headers) == [*kept]
    assert bare(*kept) == bare(*headers)


# Counts

KNOWN = {name for module in (torch, torch.special, torch.nn.functional) for name in dir(module)} | {
    *ARITHMETIC
}
OF_X = Ref("x")
COUNTED = {  # by the value of a kernel
    "1 exp, 1 division, 2 multiply-adds": Call(
        "div", (Call("add", (Call("exp", (OF_X,)), Const(1.0))), Call("mul", (OF_X, OF_X)))
    ),
    "2 tanh, 1 selection": Call("where", (OF_X, Call("tanh", (OF_X,)), Call("tanh", (Const(2.0),)))),
    "1 ndtr, 2 multiply-adds, 1 selection": Call(
        "mul", (OF_X, Call("times_ndtr", (Call("clamp_to_lowest", (OF_X,)),)))
    ),
    "no arithmetic": Call("neg", (OF_X,)),
}


@pytest.mark.together
@pytest.mark.parametrize("op", sorted({*OPS, *INSTRUCTIONS}))
def test_an_operation_counts_as_what_a_reader_knows(op: str) -> None:
    assert {*PARTS.get(op, {op: 1})} <= KNOWN


def test_every_row_is_an_operation() -> None:
    assert {*PARTS} <= {*OPS, *INSTRUCTIONS}


@pytest.mark.parametrize("line", COUNTED)
def test_a_kernel_is_counted(line: str) -> None:
    value: Expr = COUNTED[line]
    kernel = Kernel("f", Device.CUDA, Math.FLOAT, ("x",), (), (), (value,))
    assert counted(kernel) == f"{line} an element."
