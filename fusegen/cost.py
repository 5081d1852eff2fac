"""What an element costs on CUDA, in instructions that are issued, and the class of costs that makes it.

A copy leaves time to issue a few instructions for each byte it moves. A kernel that needs no more is bound
by memory whatever its launch; one that needs as many or more wants more bytes on their way while it
computes, so that a thread should read several vectors at once. `launch.toml` says how many, by class.

The counts are those of nvcc 13 for sm_90, rounded; docs/slots.py prints what is counted of whole kernels
beside what this table makes of them. Of sin and cos only the path of ordinary arguments counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fusegen.ir import Call, Expr, Kernel, Math, Ref, expressions, operations, parts
from fusegen.launch import LaunchClass
from fusegen.method import (
    Arithmetic,
    AtDefaults,
    Formula,
    Grid,
    Method,
    Piecewise,
    Table,
    Variant,
    Verified,
)
from fusegen.ops import NESTED
from fusegen.ops.kernels import WORDS


@dataclass(frozen=True, slots=True)
class Cost:
    """What an element costs.

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
FAST = Arithmetic.FAST_FLOAT
AROUND = 4  # instructions of an element that the formula does not name: indices, conversions, the loop
IN_DOUBLE, ERF_IN_DOUBLE = 3, 7  # times what a function takes in float; as do those with erf in them
TEST = 5  # instructions of an element whose rounding is tested
IN_DOUBT = 0.03  # how often it is computed in double for all elements of a warp; measured of float16
# of what moving takes, what all that may take: with 0.95 quick_gelu ran at 0.96 of a copy's speed
TIME = 0.92

# instructions in float, and where 16 bits are kept of a result by the cheaper functions; 1 unless listed
SLOTS: dict[str, tuple[int, int]] = {
    "relu": (2, 2), "relu6": (3, 3), "clamp": (4, 4), "saturate": (4, 4), "clamp_min": (2, 2),
    "clamp_max": (2, 2), "minimum": (4, 4), "maximum": (4, 4), "sign": (4, 4), "cube": (2, 2),
    "div": (12, 3), "reciprocal": (10, 3), "quotient": (14, 3), "soft_sign": (12, 5),
    "sqrt": (10, 10), "rsqrt": (20, 12), "pow": (150, 150),
    "exp": (24, 3), "exp2": (10, 6), "exp_of_two": (24, 3), "expm1": (32, 14), "expm1_of_two": (36, 14),
    "log": (24, 24), "log2": (24, 24), "log1p": (40, 40),
    "sin": (22, 22), "cos": (22, 22), "tanh": (20, 15), "tanh_of_two": (60, 15),
    "erf": (21, 19), "erf_of_two": (30, 19), "erfc": (60, 17), "ndtr": (46, 15),
    "ndtr_tail": (44, 14),
    "sigmoid": (26, 7), "sigmoid_slope": (28, 7), "softplus": (32, 14), "tanh_slope": (29, 8),
    "tanh_softplus": (30, 14), "tanh_softplus_slope": (32, 23), "gauss": (24, 4), "normal": (28, 4),
    "tanh_of_exp": (36, 16), "tanh_of_exp_slope": (42, 14), "tanh_shrink": (34, 34),
    "times_tanh_softplus": (31, 14), "times_tanh_softplus_slope": (33, 23),
    "times_ndtr": (46, 16), "times_ndtr_slope": (43, 20), "gate": (26, 7), "gate_slope": (35, 9),
    "finite_below": (2, 2), "finite_above": (2, 2), "rounded": (3, 3), "by_width": (0, 0),
    "words": (2, 0), "narrow": (1, 0), "product": (2, 1), "sum": (6, 1), "scaled": (2, 1),
    "product_plus": (5, 1), "line_of_two": (8, 1), "square_of_two": (6, 1), "cube_of_two": (7, 2),
    "lifted": (2, 0), "lift_back": (3, 0),
    "gate_of_two": (44, 7), "sigmoid_of_two": (36, 7), "sigmoid_slope_of_two": (40, 7),
    "tanh_slope_of_two": (42, 8), "times_ndtr_of_two": (62, 16),
    "times_tanh_softplus_of_two": (45, 14), "times_tanh_softplus_slope_of_two": (56, 23),
    "gate_at_two": (28, 7), "times_ndtr_at_two": (48, 16),
    "times_tanh_softplus_at_two": (33, 14), "times_tanh_softplus_slope_at_two": (35, 23),
}  # fmt: skip

# how many of them are the chip's own functions (MUFU), in the cheaper form
SPECIAL: dict[str, int] = {
    "div": 1, "reciprocal": 1, "quotient": 1, "soft_sign": 1, "sqrt": 1, "rsqrt": 1, "pow": 2,
    "exp": 1, "exp2": 1, "exp_of_two": 1, "expm1": 1, "expm1_of_two": 1, "erf": 1, "erf_of_two": 1,
    "tanh": 2, "tanh_of_two": 2, "tanh_shrink": 2, "tanh_of_exp": 3, "tanh_of_exp_slope": 3,
    "tanh_slope": 2, "sigmoid": 2, "sigmoid_slope": 2, "gate": 2, "gate_slope": 2, "softplus": 1,
    "gauss": 1, "normal": 1, "erfc": 2, "ndtr": 2, "ndtr_tail": 2, "times_ndtr": 2,
    "times_ndtr_slope": 3, "tanh_softplus": 2, "tanh_softplus_slope": 2,
    "times_tanh_softplus": 2, "times_tanh_softplus_slope": 2,
}  # fmt: skip
SPECIAL |= {name: SPECIAL[of] for name, of in NESTED.items()}
ERFS = {name for name in SLOTS if name.startswith(("erf", "ndtr", "times_ndtr"))}
WAIT = 3  # instructions that could be issued in the time that one of these takes beyond its own
# In one word of double: what functions of one argument share, and what each takes beside that. An operation
# of double takes the time of two instructions, and so does a conversion.
SHARED = {"exp": 34, "logistic": 40, "tanh": 44, "tail": 90, "softplus": 88, "turn": 100}
IN_ONE_WORD = {
    "exp": ("exp", 0), "exp_of_two": ("exp", 0), "expm1": ("exp", 4), "expm1_of_two": ("exp", 4),
    "sigmoid": ("logistic", 0), "sigmoid_slope": ("logistic", 4), "gate": ("logistic", 2),
    "gate_of_two": ("logistic", 2), "tanh": ("tanh", 8), "tanh_of_two": ("tanh", 8),
    "tanh_slope": ("tanh", 6), "ndtr_tail": ("tail", 0), "erfc": ("tail", 8), "times_ndtr": ("tail", 8),
    "times_ndtr_of_two": ("tail", 8), "times_ndtr_slope": ("tail", 14), "softplus": ("softplus", 0),
    "sin": ("turn", 0), "cos": ("turn", 0),
}  # fmt: skip
OF_DOUBLE = 2
ONE_AS_TWO = ("lifted", "lift_back", "narrow")  # what changes nothing there


def weight(names: Iterable[str]) -> int:
    """The instructions of some operations, in float."""
    return sum(SLOTS.get(name, (1, 1))[0] for name in names)


def slots(kernel: Kernel, arithmetic: Arithmetic) -> int:
    """The instructions of one element.

    Args:
        kernel: what is computed, on CUDA.
        arithmetic: that it is computed in.
    """
    each = [SLOTS.get(name, (1, 1))[arithmetic is FAST] for name in operations(kernel)]
    if kernel.math is Math.DOUBLE:
        times = (ERF_IN_DOUBLE if name in ERFS else IN_DOUBLE for name in operations(kernel))
        each = [count * by if count > 1 else count for count, by in zip(each, times, strict=True)]
    return AROUND + len(kernel.inputs) + len(kernel.results) + sum(each)


def slots_in_one_word(kernel: Kernel) -> int:
    """The instructions of one element in one word of double.

    Args:
        kernel: what is computed, on CUDA, in double.
    """
    steps: dict[Expr, Expr] = {Ref(let.name): let.value for let in kernel.lets}

    def bare(expr: Expr) -> Expr:
        """What an argument is."""
        if isinstance(expr, Call) and expr.op in ONE_AS_TWO:
            return bare(expr.args[0])
        return bare(steps[expr]) if expr in steps else expr

    calls = [e for x in expressions(kernel) for e in parts(x) if isinstance(e, Call)]
    own = [(*IN_ONE_WORD[call.op], bare(call.args[-1])) for call in calls if call.op in IN_ONE_WORD]
    shared = sum(SHARED[core] for core, _ in {(core, argument) for core, _, argument in own})
    others = (SLOTS.get(call.op, (1, 1))[call.op in WORDS] for call in calls if call.op not in IN_ONE_WORD)
    tensors = len(kernel.inputs) + len(kernel.results)
    each = shared + sum(more for _, more, _ in own) + OF_DOUBLE * sum(others)
    return AROUND + (1 + OF_DOUBLE) * tensors + each


def waits(kernel: Kernel) -> int:
    """The instructions that could be issued while the chip's own functions take longer, in 16 bits."""
    return WAIT * sum(SPECIAL.get(name, 0) for name in operations(kernel))


def cost_of(method: Method, bits: int, kernels: Mapping[Variant, Kernel]) -> Cost:
    """What an element costs that a method gives.

    Args:
        method: how a result is obtained, on CUDA.
        bits: of an element in memory.
        kernels: of the pass, on CUDA.
    """
    reads = len(kernels[Variant.DOUBLE].inputs)
    match method:
        case Table() | AtDefaults(Table()):
            return Cost(LOOK_UP[reads], LaunchClass.TABLE)
        case Piecewise(grid) | AtDefaults(Piecewise(grid)):
            return PIECES[grid][reads]
        case Verified(Formula(arithmetic)):
            each = slots(kernels[arithmetic.variant], arithmetic) + TEST
            return Cost(each, LaunchClass.TESTED)
        case Formula(Arithmetic.PLAIN_DOUBLE) if bits == 32:
            return Cost(slots_in_one_word(kernels[Variant.DOUBLE]), LaunchClass.ONE_WORD)
        case Formula(arithmetic):
            kernel = kernels[arithmetic.variant]
            return Cost(slots(kernel, arithmetic), cost(kernel, bits // 8, arithmetic))
    raise NotImplementedError(method)


def cost(kernel: Kernel, size: int, arithmetic: Arithmetic) -> LaunchClass:
    """The class of what a formula costs.

    Args:
        kernel: what is computed, on CUDA.
        size: of an element in memory, in bytes.
        arithmetic: that it is computed in.
    """
    moved = size * (len(kernel.inputs) + len(kernel.results))
    a_byte = slots(kernel, arithmetic) / moved
    return next((name for name, most in MOST.items() if a_byte <= most), LaunchClass.HEAVY)


def verification_hides(kernel: Kernel, double: Kernel, arithmetic: Arithmetic) -> bool:
    """Whether 16-bit results are computed and verified in less time than it takes to move them.

    Args:
        kernel: what is computed, on CUDA, in float.
        double: the same in double, for results whose rounding is undecided.
        arithmetic: that it is computed in.
    """
    verified = _busy(kernel, arithmetic) + TEST + IN_DOUBT * slots(double, Arithmetic.DOUBLE)
    return verified <= TIME * _moving_16_bits(kernel)


def compute_bound(kernel: Kernel, arithmetic: Arithmetic) -> bool:
    """Whether 16-bit results take longer to compute than to move."""
    return _busy(kernel, arithmetic) > _moving_16_bits(kernel)


def _busy(kernel: Kernel, arithmetic: Arithmetic) -> int:
    """The instructions of a 16-bit element, and those that could be issued while it waits."""
    return slots(kernel, arithmetic) + waits(kernel)


def _moving_16_bits(kernel: Kernel) -> float:
    """The instructions that are issued while a 16-bit element is moved."""
    return BUDGET * 2 * (len(kernel.inputs) + len(kernel.results))


def pieced(kernel: Kernel, reads: int) -> bool:
    """Whether float32 results are to be cubic polynomials: of a function of one element, or of its slope.

    Also where less is computed, if it is of what an earlier function has rounded: these err by less. What
    takes nine tenths of the time to move it runs at 0.96 of a copy's speed already.

    Args:
        kernel: what is computed, on CUDA.
        reads: the tensors that such a kernel reads: one, and the incoming gradient.
    """
    nested = not NESTED.keys().isdisjoint(operations(kernel))
    most = 0.9 * BUDGET * 4 * (reads + 1)
    return alone(kernel, reads) and not kernel.params and (nested or slots(kernel, Arithmetic.FLOAT) > most)


def alone(kernel: Kernel, reads: int) -> bool:
    """Whether a kernel is a function of one element, or its gradient, so that 65,536 are all there are."""
    return (len(kernel.inputs), len(kernel.results)) == (reads, 1)
