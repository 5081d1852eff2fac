"""The cost of an element on CUDA, in instructions that are issued, and its class.

A copy leaves time to issue a few instructions for each byte it moves. A kernel that needs no more is bound
by memory whatever its launch; one that needs as many or more wants more bytes on their way while it
computes, so that a thread should read several vectors at once. `launch.toml` says how many, by class.
`instructions` has the counts of each operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fusegen.instructions import (
    ERFS,
    EXACT,
    IN_ONE_WORD,
    OF_DOUBLE,
    ONE_AS_TWO,
    SECOND_WORD,
    SHARED,
    SLOTS,
    SPECIAL,
    WAIT,
    WIDENED,
)
from fusegen.ir import Body, Call, Expr, Kernel, Math, Ref, Word, calls, operations
from fusegen.launch import LaunchClass
from fusegen.method import (
    Arithmetic,
    AtDefaults,
    Formula,
    Grid,
    Method,
    Piecewise,
    Segmented,
    Table,
    Variant,
    Verified,
)
from fusegen.ops import PRODUCTS, ROWS
from fusegen.ops.kernels import WORDS
from fusegen.typed import widened


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of an element.

    Attributes:
        instructions: that are issued for it.
        launch_class: the class of kernels that it is launched with.
    """

    instructions: int
    launch_class: LaunchClass


MOST = {LaunchClass.LIGHT: 4.5, LaunchClass.MEDIUM: 6.0}  # instructions for each byte that is moved
# Instructions issued while a byte is moved: processors x lanes x GHz, over the TB/s of a copy. An H200's
# copy is measured, the others' are taken to be as near to what the memory has. An A100 computes floats in
# half its lanes.
BUDGETS = {80: 108 * 64 * 1.41 / 1790, 90: 132 * 128 * 1.98 / 4230, 100: 148 * 128 * 1.85 / 7050}
BUDGET = BUDGETS[90]  # which decides, so that a module is the same for every chip
# of an element that is looked up, or that a piece gives, and the class; by the tensors that are read
LOOK_UP = {1: 7, 2: 12}
PIECES = {
    Grid.UNIFORM: {1: Cost(30, LaunchClass.CUBIC), 2: Cost(33, LaunchClass.CUBIC_SLOPE)},
    Grid.OCTAVES: {1: Cost(40, LaunchClass.FINE_CUBIC), 2: Cost(43, LaunchClass.FINE_CUBIC_SLOPE)},
}
LOOP_OVERHEAD = 4  # instructions of an element: indices, conversions, the loop
IN_DOUBLE, ERF_IN_DOUBLE = 3, 7  # times what a function takes in float; as do those with erf in them
TEST = 5  # instructions of an element whose rounding is tested
IN_DOUBT = 0.03  # how often it is computed in double for all elements of a warp; measured of float16
TIME = 0.92  # of the time to move; with 0.95 quick_gelu ran at 0.96 of a copy's speed
OF_PLACES, OF_SUMS = 25, 40  # instructions of a broadcast element: places, and sums of gradients


def weight(names: Iterable[str]) -> int:
    """The instructions of some operations, in float."""
    return sum(SLOTS.get(name, (1, 1))[0] for name in names)


def instructions(kernel: Kernel, arithmetic: Arithmetic) -> int:
    """The instructions of one element.

    Args:
        kernel: what is computed, on CUDA.
        arithmetic: that it is computed in.
    """
    moving = [call for call in calls(kernel) if not _is_uniform(call, kernel)]
    each = [_instructions(call, arithmetic) for call in moving]
    if kernel.math is Math.DOUBLE:
        times = (ERF_IN_DOUBLE if call.op in ERFS else IN_DOUBLE for call in moving)
        each = [count * by if count > 1 else count for count, by in zip(each, times, strict=True)]
    return LOOP_OVERHEAD + len(kernel.inputs) + len(kernel.results) + sum(each)


def _is_uniform(call: Call, kernel: Kernel) -> bool:
    """True if an operation reads scalars only, so that a thread computes it once."""
    return all(isinstance(arg, Ref) and arg.name in kernel.params for arg in call.args)


def _instructions(call: Call, arithmetic: Arithmetic) -> int:
    """The instructions of one operation."""
    single, fast = SLOTS.get(call.op, (1, 1))
    if arithmetic is Arithmetic.FAST_FLOAT:
        return fast
    if widened(call):
        return (EXACT if call.body else WIDENED).get(call.op, WIDENED.get(call.op, single))
    return single + SECOND_WORD if _is_chained(call) else single


def _is_chained(call: Call) -> bool:
    """True if a product takes a value that an earlier function has rounded."""
    return call.op in PRODUCTS and call.args[0].word is Word.DOUBLE


def instructions_in_one_word(kernel: Kernel) -> int:
    """The instructions of one element in one word of double.

    Args:
        kernel: what is computed, on CUDA, in double.
    """
    steps: dict[Expr, Expr] = {Ref(let.name, let.word): let.value for let in kernel.lets}

    def bare(expr: Expr) -> Expr:
        """The expression that an argument stands for."""
        if isinstance(expr, Call) and expr.op in ONE_AS_TWO:
            return bare(expr.args[0])
        return bare(steps[expr]) if expr in steps else expr

    own = [(*IN_ONE_WORD[call.op], bare(call.args[-1])) for call in calls(kernel) if call.op in IN_ONE_WORD]
    shared = sum(SHARED[core] for core, _ in {(core, argument) for core, _, argument in own})
    others = (
        SLOTS.get(call.op, (1, 1))[call.op in WORDS or widened(call)]
        for call in calls(kernel)
        if call.op not in IN_ONE_WORD
    )
    tensors = len(kernel.inputs) + len(kernel.results)
    each = shared + sum(more for _, more, _ in own) + OF_DOUBLE * sum(others)
    return LOOP_OVERHEAD + (1 + OF_DOUBLE) * tensors + each


def sfu_stall(kernel: Kernel) -> int:
    """The instructions that could be issued while the special-function units stall, in 16 bits."""
    return WAIT * sum(SPECIAL.get(name, 0) for name in operations(kernel))


def cost_of(
    method: Method, bits: int, kernels: Mapping[Variant, Kernel], by_curves: Kernel | None = None
) -> Cost:
    """The cost of an element that a method gives.

    Args:
        method: how a result is obtained, on CUDA.
        bits: of an element in memory.
        kernels: of the pass, on CUDA.
        by_curves: the one that calls its curves, if it has any.
    """
    reads = len(kernels[Variant.DOUBLE].inputs)
    match method:
        case Table() | AtDefaults(Table()):
            return Cost(LOOK_UP[reads], LaunchClass.TABLE)
        case Piecewise(grid) | AtDefaults(Piecewise(grid)):
            return PIECES[grid][reads]
        case Verified(Formula(arithmetic)):
            each = instructions(kernels[arithmetic.variant], arithmetic) + TEST
            return Cost(each, LaunchClass.TESTED)
        case Segmented():
            assert by_curves is not None
            return Cost(instructions(by_curves, Arithmetic.FLOAT), cost(by_curves, 4, Arithmetic.FLOAT))
        case Formula(Arithmetic.PLAIN_DOUBLE) if bits == 32:
            return Cost(instructions_in_one_word(kernels[Variant.DOUBLE]), LaunchClass.ONE_WORD)
        case Formula(arithmetic):
            kernel = kernels[arithmetic.variant]
            return Cost(instructions(kernel, arithmetic), cost(kernel, bits // 8, arithmetic))
    raise NotImplementedError(method)


def cost(kernel: Kernel, size: int, arithmetic: Arithmetic) -> LaunchClass:
    """The class of what a formula costs.

    Args:
        kernel: what is computed, on CUDA.
        size: of an element in memory, in bytes.
        arithmetic: that it is computed in.
    """
    a_byte = instructions(kernel, arithmetic) / (size * kernel.moved)
    return next((name for name, most in MOST.items() if a_byte <= most), LaunchClass.HEAVY)


def verification_hides(kernel: Kernel, double: Kernel, arithmetic: Arithmetic) -> bool:
    """True if 16-bit results are computed and verified in less time than it takes to move them.

    Args:
        kernel: what is computed, on CUDA, in float.
        double: the same in double, for results whose rounding is undecided.
        arithmetic: that it is computed in.
    """
    verified = _busy(kernel, arithmetic) + TEST + IN_DOUBT * instructions(double, Arithmetic.DOUBLE)
    return verified <= TIME * _issued(kernel, 2)


def hides(kernel: Kernel) -> bool:
    """True if a float32 element takes no longer to compute in float than to move, on CUDA."""
    around = 0 if not kernel.small else OF_SUMS if len(kernel.results) > 1 else OF_PLACES
    return instructions(kernel, Arithmetic.FLOAT) + around <= TIME * _issued(kernel, 4)


def compute_bound(kernel: Kernel, arithmetic: Arithmetic) -> bool:
    """True if 16-bit results take longer to compute than to move."""
    return _busy(kernel, arithmetic) > _issued(kernel, 2)


def _busy(kernel: Kernel, arithmetic: Arithmetic) -> int:
    """The instructions of a 16-bit element, and those that could be issued while it stalls."""
    return instructions(kernel, arithmetic) + sfu_stall(kernel)


def _issued(kernel: Kernel, size: int) -> float:
    """The instructions that are issued while an element of some bytes is moved."""
    return BUDGET * size * kernel.moved


def pieced(kernel: Kernel, reads: int) -> bool:
    """True if float32 results are to be cubic polynomials: of a function of one element, or of its slope.

    Also where less is computed, if it is of what an earlier function has rounded: these err by less. What
    takes nine tenths of the time to move it runs at 0.96 of a copy's speed already.

    Args:
        kernel: what is computed, on CUDA.
        reads: the tensors that such a kernel reads: one, and the incoming gradient.
    """
    nested = any(
        _is_chained(call) or (call.body is Body.DOUBLE_WORD and ROWS[call.op].single)
        for call in calls(kernel)
    )
    most = 0.9 * BUDGET * 4 * (reads + 1)
    return (
        alone(kernel, reads)
        and not kernel.params
        and (nested or instructions(kernel, Arithmetic.FLOAT) > most)
    )


def alone(kernel: Kernel, reads: int) -> bool:
    """True if a kernel is a function of one element, or its gradient, so that 65,536 are all there are."""
    return (len(kernel.inputs), len(kernel.results)) == (reads, 1)
