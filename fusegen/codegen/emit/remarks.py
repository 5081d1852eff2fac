"""The remarks above a kernel: its arithmetic, and the methods that are not the formula alone."""

from collections.abc import Iterator

from fusegen.codegen.emit.needed_kernels import emitted
from fusegen.codegen.printers.families import double_word
from fusegen.compiler.pipeline import Compiled
from fusegen.core.ir import Body, Const, Kernel, Math, Word, calls, operations
from fusegen.core.method import Pass, Variant
from fusegen.core.ops import SINGLE_WORD_VALUED, TRANSCENDENTAL
from fusegen.core.targets import Device
from fusegen.schedule.sentences import noteworthy, told

DOUBLE_WORD = "Double-word arithmetic (hi + lo), rounded once."
LINKED = "Double-word arithmetic (hi + lo), rounded once; in float, single-word where errors grow little."
ARGUMENTS = "Double-word arithmetic (hi + lo), rounded once; in float, only the arguments are double-word."
OWN = ("tanh", "erf")  # single-word functions of the CPU's math library
IN_DOUBLE = "Single words in float; in double, double-word arithmetic (hi + lo), rounded once."
OTHERS = "16-bit and float64: "  # of kernels whose float32 results have a function of their own
LINEAR = "Near zero, the linear term, since low words would underflow."


def remarks(of: Compiled, which: Pass, device: Device) -> Iterator[str]:
    """Yield the remarks on a pass on a device."""
    found = emitted(of, which, device)
    first, *others = found.kernels
    in_single = device.single_words and not _reads_words(first)
    said = (IN_DOUBLE,) if in_single and any(map(_reads_words, others)) else arithmetic(first)
    yield from (
        f"{OTHERS}{each[0].lower()}{each[1:]}" if Variant.SINGLE_RESULT in found.named else each
        for each in said
    )
    yield from told(noteworthy(of.plan.of(which, device)))


def arithmetic(kernel: Kernel) -> Iterator[str]:
    """Yield the remarks on the arithmetic of a kernel."""
    if double_word(kernel):
        in_single = kernel.device.single_words and kernel.math is Math.FLOAT
        single = any(call.op in SINGLE_WORD_VALUED and call.word is Word.SINGLE for call in calls(kernel))
        yield LINKED if _is_linked(kernel) else ARGUMENTS if in_single and single else DOUBLE_WORD
    if not kernel.device.single_words and "scaled" in operations(kernel):  # nothing else is scaled there
        yield LINEAR


def _reads_words(kernel: Kernel) -> bool:
    return any(
        arg.word is Word.DOUBLE
        for call in calls(kernel)
        if call.op in TRANSCENDENTAL
        for arg in call.args
        if not isinstance(arg, Const)
    )


def _is_linked(kernel: Kernel) -> bool:
    """True if functions of a chain give and take single words, which they do in float on the CPU only."""
    gives_words = not kernel.device.single_words and kernel.math is Math.FLOAT
    return gives_words and any(
        call.body in (Body.SINGLE_WORD, Body.NEAR) or (call.op in OWN and call.word is Word.SINGLE)
        for call in calls(kernel)
    )
