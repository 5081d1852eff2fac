"""What an element costs on CUDA, in instructions that are issued, and the class of costs that makes it.

A copy leaves time to issue a few instructions for each byte it moves. A kernel that needs no more is bound
by memory whatever its launch; one that needs as many or more wants more bytes on their way while it
computes, so that a thread should read several vectors at once. `launch.toml` says how many, by class.

The counts are those of nvcc 13 for sm_90, rounded; docs/slots.py prints what is counted of whole kernels
beside what this table makes of them. Of sin and cos only the path of ordinary arguments counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from fusegen.ir import Call, Expr, Kernel, Math, Ref, expressions, operations, parts
from fusegen.launch import CLASSES
from fusegen.ops import NESTED, WORDS

LIGHT, MEDIUM, HEAVY, TESTED, TABLE, *_CUBIC, ONE_WORD = CLASSES
# by the tensors that are read
CUBIC, FINE_CUBIC = dict(enumerate(_CUBIC[:2], 1)), dict(enumerate(_CUBIC[2:], 1))
MOST = {LIGHT: 4.5, MEDIUM: 6.0}  # instructions for each byte that is moved
# Instructions issued while a byte is moved: processors x lanes x GHz, over the TB/s of a copy. An H200's
# copy is measured, the others' are taken to be as near to what the memory has. An A100 computes floats in
# half its lanes.
BUDGETS = {80: 108 * 64 * 1.41 / 1790, 90: 132 * 128 * 1.98 / 4230, 100: 148 * 128 * 1.85 / 7050}
BUDGET = BUDGETS[90]  # which decides, so that a module is the same for every chip
LOOK_UP = {1: 7, 2: 12}  # instructions of an element that is looked up; by the tensors that are read
PIECE, FINE_PIECE = {1: 30, 2: 33}, {1: 40, 2: 43}  # of one that a piece gives
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


def slots(kernel: Kernel, cheaper: bool) -> int:
    """The instructions of one element.

    Args:
        kernel: what is computed, on CUDA.
        cheaper: whether its functions are those that 16-bit results take.
    """
    each = [SLOTS.get(name, (1, 1))[cheaper] for name in operations(kernel)]
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


def cost(kernel: Kernel, size: int, cheaper: bool) -> str:
    """The class of a kernel's costs.

    Args:
        kernel: what is computed, on CUDA.
        size: of an element in memory, in bytes.
        cheaper: whether its functions are those that 16-bit results take.
    """
    moved = size * (len(kernel.inputs) + len(kernel.results))
    a_byte = slots(kernel, cheaper) / moved
    return next((name for name, most in MOST.items() if a_byte <= most), HEAVY)


def in_16_bits(kernel: Kernel, double: Kernel, reads: int, cheaper: bool, errs: bool) -> str | None:
    """How double makes 16-bit results right: it settles what is in doubt, or has computed all there are.

    None where nothing errs by more than in the math library, or there is neither time nor a table: a
    function of several elements has more results.

    Args:
        kernel: what is computed, on CUDA, in float.
        double: the same in double.
        reads: the tensors that a function of one element reads here, or its gradient.
        cheaper: whether its functions are those that 16-bit results take.
        errs: whether any of them errs by more than the math library's.
    """
    time = BUDGET * 2 * (len(kernel.inputs) + len(kernel.results))
    each = slots(kernel, cheaper) + waits(kernel)
    if errs and each + TEST + IN_DOUBT * slots(double, False) <= TIME * time:
        return TESTED
    return TABLE if alone(kernel, reads) and (errs or each > time) else None


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
    return alone(kernel, reads) and not kernel.params and (nested or slots(kernel, False) > most)


def alone(kernel: Kernel, reads: int) -> bool:
    """Whether a kernel is a function of one element, or its gradient, so that 65,536 are all there are."""
    return (len(kernel.inputs), len(kernel.results)) == (reads, 1)
