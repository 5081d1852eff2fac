"""The types of a kernel's values: the result type of an operation by the types of its arguments.

An operation's row says it (`Op.words`), unless a call names the body of the function. In float on CUDA some
functions are single-word (`Op.single`).
"""

from fusegen.core.ir import Body, Call, Expr, Math, Word
from fusegen.core.ops import ROWS
from fusegen.core.ops.row import Words
from fusegen.core.targets import Device


def call(op: str, args: tuple[Expr, ...], device: Device, math: Math, body: Body | None = None) -> Call:
    """Return a call of an operation, with the type that it has in a kernel."""
    return Call(op, args, given(Call(op, args, body=body), device, math), body)


def given(call: Call, device: Device, math: Math) -> Word:
    """Return the type of the value that an operation gives of its arguments."""
    if call.body:
        return Word.DOUBLE if call.body is Body.DOUBLE_WORD else Word.SINGLE
    row = ROWS[call.op]
    if row.single and device.single_words and math is Math.FLOAT:
        return Word.SINGLE
    match row.words:
        case Words.SINGLE | Words.NARROWED:
            return Word.SINGLE
        case Words.DOUBLE:
            return Word.DOUBLE
        case Words.AS_FIRST:
            return call.args[0].word
        case Words.AS_GIVEN:
            return Word.DOUBLE if takes_double(call) else Word.SINGLE


def takes_double(call: Call) -> bool:
    """Return True if an argument of a call is a double-word value."""
    return any(arg.word is Word.DOUBLE for arg in call.args)


def widened(call: Call) -> bool:
    """Return True if a call gives a double-word value that its operation does not give of single words."""
    own = call.body is None and ROWS[call.op].words is Words.DOUBLE
    return call.word is Word.DOUBLE and not own
