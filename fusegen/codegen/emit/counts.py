"""The operations of an element, counted by what a reader knows: functions of PyTorch and arithmetic."""

from collections import Counter
from collections.abc import Mapping

from fusegen.codegen.emit.needed_kernels import Emitted
from fusegen.core.ir import Kernel, operations
from fusegen.core.method import Pass

TITLES = {Pass.FORWARD: "Forward", Pass.BACKWARD: "Gradient"}
DIVISION, MULTIPLY_ADD, COMPARISON, SELECTION = "division", "multiply-add", "comparison", "selection"
CUBIC = "piecewise cubic"
ARITHMETIC = (CUBIC, DIVISION, MULTIPLY_ADD, COMPARISON, SELECTION)  # in this order, after functions
ADDED = {MULTIPLY_ADD: 1}  # also a sum or a product alone
COMPARED, SELECTED, CLAMPED, DIVIDED = {COMPARISON: 1}, {SELECTION: 1}, {SELECTION: 2}, {DIVISION: 1}
NONE: dict[str, int] = {}  # constants, signs of operands, and what the compiler decides

# the arithmetic and the functions of an operation that is no function of PyTorch
PARTS: dict[str, dict[str, int]] = {
    "add": ADDED, "sub": ADDED, "mul": ADDED, "fma": ADDED, "square": ADDED, "cube": {MULTIPLY_ADD: 2},
    "div": DIVIDED, "quotient": DIVIDED, "reciprocal": DIVIDED,
    "lt": COMPARED, "le": COMPARED, "gt": COMPARED, "ge": COMPARED, "eq": COMPARED, "ne": COMPARED,
    "where": SELECTED, "relu": SELECTED, "clamp_min": SELECTED, "clamp_max": SELECTED,
    "minimum": SELECTED, "maximum": SELECTED, "relu6": CLAMPED, "clamp": CLAMPED, "saturate": CLAMPED,
    "clamp_to_lowest": SELECTED, "clamp_to_highest": SELECTED, "prescaled": SELECTED, "unscale": SELECTED,
    "pi": NONE, "e": NONE, "neg": NONE, "detach": NONE, "select_by_width": NONE, "round_to_storage": NONE,
    "words": NONE, "narrow": ADDED, "scaled": {MULTIPLY_ADD: 2}, "product_plus": {MULTIPLY_ADD: 4},
    "linear": {MULTIPLY_ADD: 5}, "curve": {CUBIC: 1},
    "sinpi": {"sin": 1}, "cospi": {"cos": 1},
    "sigmoid_slope": {"exp": 1, DIVISION: 1, MULTIPLY_ADD: 2},
    "tanh_slope": {"exp": 1, DIVISION: 1, MULTIPLY_ADD: 3},
    "tanh_shrink": {"tanh": 1, MULTIPLY_ADD: 1},
    "tanh_softplus": {"exp": 1, DIVISION: 1, MULTIPLY_ADD: 2},
    "tanh_softplus_slope": {"exp": 1, DIVISION: 1, MULTIPLY_ADD: 6},
    "tanh_of_exp": {"exp": 1, "tanh": 1},
    "tanh_of_exp_slope": {"exp": 2, DIVISION: 1, MULTIPLY_ADD: 3},
    "scaled_hypot": {"sqrt": 1, MULTIPLY_ADD: 5, COMPARISON: 3, SELECTION: 5},
    "scaled_hypot_slope": {"sqrt": 1, DIVISION: 1, MULTIPLY_ADD: 4, COMPARISON: 3, SELECTION: 3},
    "soft_sign": {"abs": 1, DIVISION: 1, MULTIPLY_ADD: 1},
    "gauss": {"exp": 1, MULTIPLY_ADD: 1},
    "normal": {"exp": 1, MULTIPLY_ADD: 3},
    "ndtr_tail": {"ndtr": 1},
    "times_tanh_softplus": {"exp": 1, DIVISION: 1, MULTIPLY_ADD: 3},
    "times_tanh_softplus_slope": {"exp": 1, DIVISION: 2, MULTIPLY_ADD: 5},
    "times_ndtr": {"ndtr": 1, MULTIPLY_ADD: 1},
    "times_ndtr_slope": {"ndtr": 1, "exp": 1, MULTIPLY_ADD: 4},
    "x_sigmoid": {"sigmoid": 1, MULTIPLY_ADD: 1},
    "times_sigmoid": {"sigmoid": 1, MULTIPLY_ADD: 4}, "x_sigmoid_slope": {"sigmoid": 1, MULTIPLY_ADD: 10},
}  # fmt: skip


def counts(kernels: Mapping[Pass, Emitted]) -> tuple[str, ...]:
    """Return a line for each pass: ``Forward: 1 exp, 1 division, 9 multiply-adds an element.``."""
    return tuple(f"{TITLES[which]}: {counted(each.kernels[0])}" for which, each in kernels.items())


def counted(kernel: Kernel) -> str:
    """Return the operations of a kernel: functions in the order of the formula, then arithmetic."""
    found: Counter[str] = Counter()
    for op in operations(kernel):
        found.update(PARTS.get(op, {op: 1}))
    names = [*(name for name in found if name not in ARITHMETIC), *(n for n in ARITHMETIC if n in found)]
    told = [f"{found[name]} {name}{'s' * (name in ARITHMETIC and found[name] > 1)}" for name in names]
    return f"{', '.join(told) or 'no arithmetic'} an element."
