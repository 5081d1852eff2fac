"""The types of a kernel's values: what an operation gives of single-word and double-word arguments.

An operation's row says it (`Op.words`); only the functions that are single-word in float on CUDA
(`Op.single`) depend on what a kernel is computed in.
"""

from __future__ import annotations

from fusegen.ir import Call, Device, Expr, Math, Word
from fusegen.ops import ROWS
from fusegen.ops.row import Op, Words


def call(op: str, args: tuple[Expr, ...], device: Device, math: Math) -> Call:
    """A call of an operation, with the type that it has in a kernel."""
    return Call(op, args, given(ROWS[op], args, device, math))


def given(row: Op, args: tuple[Expr, ...], device: Device, math: Math) -> Word:
    """The type of the value that an operation gives of some arguments."""
    if row.single and (device, math) == (Device.CUDA, Math.FLOAT):
        return Word.SINGLE
    match row.words:
        case Words.SINGLE | Words.NARROWED:
            return Word.SINGLE
        case Words.DOUBLE:
            return Word.DOUBLE
        case Words.AS_FIRST:
            return args[0].word
        case Words.AS_GIVEN:
            return Word.DOUBLE if any(arg.word is Word.DOUBLE for arg in args) else Word.SINGLE


def takes(row: Op, args: tuple[Expr, ...]) -> bool:
    """Whether an operation takes arguments of such types."""
    return row.words is not Words.SINGLE or all(arg.word is Word.SINGLE for arg in args)
