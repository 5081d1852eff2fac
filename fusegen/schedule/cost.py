"""The cost of an element on CUDA, in instructions that are issued, and its class.

A copy leaves time to issue a few instructions for each byte it moves. A kernel that needs no more is bound
by memory whatever its launch. One that needs as many or more has to keep more loads in flight, so that a
thread should read several vectors at once. `launch.toml` says how many, by class.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fusegen.core.chips import CHIPS
from fusegen.core.instructions import (
    ERFS,
    EXACT,
    IN_PLAIN_DOUBLE,
    INSTRUCTIONS,
    OF_DOUBLE,
    ONE_AS_TWO,
    SECOND_WORD,
    SHARED,
    SPECIAL,
    WAIT,
    WIDENED,
)
from fusegen.core.ir import Body, Call, Expr, Kernel, Math, Ref, Word, calls, operations
from fusegen.core.launch import LaunchClass
from fusegen.core.method import (
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
from fusegen.core.op_types import widened
from fusegen.core.ops import PRODUCTS, ROWS
from fusegen.core.ops.double_word import WORDS


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of an element."""

    instructions: int  # that are issued for it
    launch_class: LaunchClass  # the class of kernels that it is launched with


MAX_PER_BYTE = {LaunchClass.LIGHT: 4.5, LaunchClass.MEDIUM: 6.0}  # instructions for each byte that is moved
# Instructions issued while a byte is moved, by the architecture
BUDGETS = {80: CHIPS["a100"].budget, 90: CHIPS["h200"].budget, 100: CHIPS["b200"].budget}
BUDGET = BUDGETS[90]  # decides, so that a module is the same for every chip
# instructions of a table lookup, and the cost of a piecewise cubic, by the number of tensors read
TABLE_LOOKUP = {1: 7, 2: 12}
PIECES = {
    Grid.UNIFORM: {1: Cost(30, LaunchClass.CUBIC), 2: Cost(33, LaunchClass.CUBIC_SLOPE)},
    Grid.OCTAVES: {1: Cost(40, LaunchClass.FINE_CUBIC), 2: Cost(43, LaunchClass.FINE_CUBIC_SLOPE)},
}
LOOP_OVERHEAD = 4  # instructions of an element: indices, conversions, the loop
IN_DOUBLE, ERF_IN_DOUBLE = 3, 7  # times the instructions in float; of functions with erf in them
VERIFY_COST = 5  # instructions that verify the rounding of an element
UNDECIDED_RATE = 0.03  # of warps that recompute their elements in double; measured for float16
COPY_SHARE = 0.92  # of the time to move; with 0.95 quick_gelu ran at 0.96 of copy bandwidth
OF_INDICES, OF_SUMS = 25, 40  # instructions of a broadcast element: its indices, and sums of gradients


def instruction_count(names: Iterable[str]) -> int:
    """Return the instructions of some operations, in float."""
    return sum(INSTRUCTIONS.get(name, (1, 1))[0] for name in names)


def instructions(kernel: Kernel, arithmetic: Arithmetic) -> int:
    """Return the instructions of one element of a kernel on CUDA in an arithmetic."""
    moving = [call for call in calls(kernel) if not _is_uniform(call, kernel)]
    each = [_instructions(call, arithmetic) for call in moving]
    if kernel.math is Math.DOUBLE:
        times = (ERF_IN_DOUBLE if call.op in ERFS else IN_DOUBLE for call in moving)
        each = [count * by if count > 1 else count for count, by in zip(each, times, strict=True)]
    return LOOP_OVERHEAD + len(kernel.inputs) + len(kernel.results) + sum(each)


def _is_uniform(call: Call, kernel: Kernel) -> bool:
    """Return True if an operation reads scalars only, so that a thread computes it once."""
    return all(isinstance(arg, Ref) and arg.name in kernel.params for arg in call.args)


def _instructions(call: Call, arithmetic: Arithmetic) -> int:
    """Return the instructions of one operation."""
    single, fast = INSTRUCTIONS.get(call.op, (1, 1))
    if arithmetic is Arithmetic.FAST_FLOAT:
        return fast
    if widened(call):
        return (EXACT if call.body else WIDENED).get(call.op, WIDENED.get(call.op, single))
    return single + SECOND_WORD if _is_chained(call) else single


def _is_chained(call: Call) -> bool:
    """Return True if a product takes a value that an earlier function has rounded."""
    return call.op in PRODUCTS and call.args[0].word is Word.DOUBLE


def instructions_in_plain_double(kernel: Kernel) -> int:
    """Return the instructions of one element of a CUDA kernel in single-word double."""
    steps: dict[Expr, Expr] = {Ref(let.name, let.word): let.value for let in kernel.lets}

    def bare(expr: Expr) -> Expr:
        """Return the expression that an argument stands for."""
        if isinstance(expr, Call) and expr.op in ONE_AS_TWO:
            return bare(expr.args[0])
        return bare(steps[expr]) if expr in steps else expr

    listed = [call for call in calls(kernel) if call.op in IN_PLAIN_DOUBLE]
    own = [(*IN_PLAIN_DOUBLE[call.op], bare(call.args[-1])) for call in listed]
    shared = sum(SHARED[core] for core, _ in {(core, argument) for core, _, argument in own})
    others = (
        INSTRUCTIONS.get(call.op, (1, 1))[call.op in WORDS or widened(call)]
        for call in calls(kernel)
        if call.op not in IN_PLAIN_DOUBLE
    )
    tensors = len(kernel.inputs) + len(kernel.results)
    each = shared + sum(more for _, more, _ in own) + OF_DOUBLE * sum(others)
    return LOOP_OVERHEAD + (1 + OF_DOUBLE) * tensors + each


def sfu_stall(kernel: Kernel) -> int:
    """Return the instructions that could be issued while the special-function units stall, in 16 bits."""
    return WAIT * sum(SPECIAL.get(name, 0) for name in operations(kernel))


def cost_of(
    method: Method,  # how a result is obtained, on CUDA
    bits: int,  # of an element in memory
    kernels: Mapping[Variant, Kernel],  # of the pass, on CUDA
    by_curves: Kernel | None = None,  # the one that calls its curves, if it has any
) -> Cost:
    """Return the cost of an element that a method gives."""
    reads = len(kernels[Variant.DOUBLE].inputs)
    match method:
        case Table() | AtDefaults(Table()):
            return Cost(TABLE_LOOKUP[reads], LaunchClass.TABLE)
        case Piecewise(grid) | AtDefaults(Piecewise(grid)):
            return PIECES[grid][reads]
        case Verified(Formula(arithmetic)):
            each = instructions(kernels[arithmetic.variant], arithmetic) + VERIFY_COST
            return Cost(each, LaunchClass.VERIFIED)
        case Segmented():
            assert by_curves is not None
            return Cost(instructions(by_curves, Arithmetic.FLOAT), cost(by_curves, 4, Arithmetic.FLOAT))
        case Formula(Arithmetic.PLAIN_DOUBLE) if bits == 32:
            return Cost(instructions_in_plain_double(kernels[Variant.DOUBLE]), LaunchClass.PLAIN_DOUBLE)
        case Formula(arithmetic):
            kernel = kernels[arithmetic.variant]
            return Cost(instructions(kernel, arithmetic), cost(kernel, bits // 8, arithmetic))
    raise NotImplementedError(method)


def cost(kernel: Kernel, size: int, arithmetic: Arithmetic) -> LaunchClass:
    """Return the class of what a formula costs on CUDA, for elements of a size in bytes."""
    a_byte = instructions(kernel, arithmetic) / (size * kernel.moved)
    return next((name for name, most in MAX_PER_BYTE.items() if a_byte <= most), LaunchClass.HEAVY)


def verification_hides(
    kernel: Kernel,  # what is computed, on CUDA, in float
    double: Kernel,  # the same in double, for results whose rounding is undecided
    arithmetic: Arithmetic,  # that it is computed in
) -> bool:
    """Return True if 16-bit results are computed and verified in less time than it takes to move them."""
    recomputed = UNDECIDED_RATE * instructions(double, Arithmetic.DOUBLE)
    return _busy(kernel, arithmetic) + VERIFY_COST + recomputed <= COPY_SHARE * _issued(kernel, 2)


def hides(kernel: Kernel) -> bool:
    """Return True if a float32 element takes no longer to compute in float than to move, on CUDA."""
    around = 0 if not kernel.small else OF_SUMS if len(kernel.results) > 1 else OF_INDICES
    return instructions(kernel, Arithmetic.FLOAT) + around <= COPY_SHARE * _issued(kernel, 4)


def compute_bound(kernel: Kernel, arithmetic: Arithmetic) -> bool:
    """Return True if 16-bit results take longer to compute than to move."""
    return _busy(kernel, arithmetic) > _issued(kernel, 2)


def _busy(kernel: Kernel, arithmetic: Arithmetic) -> int:
    """Return the instructions of a 16-bit element, and those that could be issued while it stalls."""
    return instructions(kernel, arithmetic) + sfu_stall(kernel)


def _issued(kernel: Kernel, size: int) -> float:
    """Return the instructions that are issued while an element of some bytes is moved."""
    return BUDGET * size * kernel.moved


def piecewise_pays(
    kernel: Kernel,  # what is computed, on CUDA
    reads: int,  # the tensors that such a kernel reads: one, and the incoming gradient
) -> bool:
    """True if a piecewise cubic computes float32 results in less time, for a unary function or its slope.

    So it does for functions of an earlier function's value, since the cubic rounds less. A kernel that
    computes for nine tenths of the time to move runs at 0.96 of copy bandwidth already.
    """
    nested = any(
        _is_chained(call) or (call.body is Body.DOUBLE_WORD and ROWS[call.op].single)
        for call in calls(kernel)
    )
    most = 0.9 * BUDGET * 4 * (reads + 1)
    return (
        is_unary(kernel, reads)
        and not kernel.params
        and (nested or instructions(kernel, Arithmetic.FLOAT) > most)
    )


def is_unary(kernel: Kernel, reads: int) -> bool:
    """True if a kernel is a function of one element, or its gradient, so that 65,536 are all there are."""
    return (len(kernel.inputs), len(kernel.results)) == (reads, 1)
