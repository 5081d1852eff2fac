"""The families of headers that define the functions of kernels, and kernels in double-word arithmetic."""

from collections.abc import Iterable

from fusegen.core.ir import Body, Call, Kernel, Word, calls
from fusegen.core.op_types import takes_double
from fusegen.core.ops import ROWS
from fusegen.core.ops.double_word import WORDS
from fusegen.core.ops.row import Words

BODIES: dict[Body | None, str] = {Body.SINGLE_RESULT: "single_result"}  # a header of their own


def headers(kernels: Iterable[Kernel]) -> tuple[str, ...]:
    """Return the families of headers that define what kernels of a device call, sorted.

    On CUDA the math library's functions are CUDA's, but for bodies in double-word arithmetic.
    """
    found = {
        BODIES.get(call.body, ROWS[call.op].header)
        for kernel in kernels
        for call in calls(kernel)
        if _is_ours(call, kernel)
    }
    return tuple(sorted(found - {""}))


def _is_ours(call: Call, kernel: Kernel) -> bool:
    row = ROWS[call.op]
    if call.body or row.infix:
        return call.body is not None
    return not row.libm or not kernel.device.libm or takes_double(call)


def double_word(kernel: Kernel) -> bool:
    """Return True if a kernel computes in double-word arithmetic anywhere."""
    in_words = (Words.DOUBLE, Words.AS_FIRST)
    return any(
        call.body or call.word is Word.DOUBLE or call.op in WORDS or ROWS[call.op].words in in_words
        for call in calls(kernel)
    )
