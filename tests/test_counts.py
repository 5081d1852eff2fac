"""The counts in a module's header: operations that a reader knows."""

import pytest
import torch

from fusegen.codegen.emit.counts import ARITHMETIC, PARTS, counted
from fusegen.core.instructions import INSTRUCTIONS
from fusegen.core.ir import Call, Const, Expr, Kernel, Math, Ref
from fusegen.core.ops import OPS
from fusegen.core.targets import Device

KNOWN = {name for module in (torch, torch.special, torch.nn.functional) for name in dir(module)} | {
    *ARITHMETIC
}
X = Ref("x")
LINES = {  # by the value of a kernel
    "1 exp, 1 division, 2 multiply-adds": Call(
        "div", (Call("add", (Call("exp", (X,)), Const(1.0))), Call("mul", (X, X)))
    ),
    "2 tanh, 1 selection": Call("where", (X, Call("tanh", (X,)), Call("tanh", (Const(2.0),)))),
    "1 ndtr, 2 multiply-adds, 1 selection": Call(
        "mul", (X, Call("times_ndtr", (Call("clamp_to_lowest", (X,)),)))
    ),
    "no arithmetic": Call("neg", (X,)),
}


@pytest.mark.together
@pytest.mark.parametrize("op", sorted({*OPS, *INSTRUCTIONS}))
def test_an_operation_counts_as_what_a_reader_knows(op: str) -> None:
    assert {*PARTS.get(op, {op: 1})} <= KNOWN


def test_every_row_is_an_operation() -> None:
    assert {*PARTS} <= {*OPS, *INSTRUCTIONS}


@pytest.mark.parametrize("line", LINES)
def test_a_kernel_is_counted(line: str) -> None:
    value: Expr = LINES[line]
    kernel = Kernel("f", Device.CUDA, Math.FLOAT, ("x",), (), (), (value,))
    assert counted(kernel) == f"{line} an element."
