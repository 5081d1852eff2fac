"""The rounding error of one operation at every point, and how far its result moves with its arguments."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fusegen.core import budget
from fusegen.core.ops import TRANSCENDENTAL
from fusegen.numerics.ieee import DECIDED, Column, column
from fusegen.numerics.roundoff.graph import DIGITS, FLOAT, Graph, Node, Range

GONE = 2.0**-102  # the size below which the low word of a double-word underflows
STEP = 2.0**-20  # of a difference
NEAR_ONE = 1 - 2.0**-20  # a difference up to so much of the smaller number is exact
NONE = 2.0**-27  # of a value that is as near to its argument, or to 1, and is that
# what passes a value on as it is, or one of several
EXACT = frozenset(
    (*DECIDED, "neg", "abs", "sign", "relu", "relu6", "clamp", "saturate", "clamp_min", "clamp_max",
     "minimum", "maximum", "clamp_to_lowest", "clamp_to_highest", "words", "prescaled", "unscale",
     "select_by_width", "round_to_storage", "detach")
)  # fmt: skip

Mask = npt.NDArray[np.bool_]  # a truth value for each point


@dataclass(frozen=True)
class Run:
    """A kernel's operations with their values at all points."""

    graph: Graph  # the operations
    range: Range  # of their values
    values: Sequence[Column]  # a column for each
    # what operations round and their slopes, once they are known; the same for every result
    known: dict[int, tuple[Column, list[Column]]] = field(default_factory=dict)
    # the distance of a function's value from its argument, or from 1, that counts as none
    none: float = NONE


def local(place: int, run: Run) -> tuple[Column, list[Column]]:
    """Return the rounding of an operation, and its slopes by its arguments."""
    if place not in run.known:
        node, values = run.graph.nodes[place], run.values
        run.known[place] = _rounded(place, run), list(_slopes(node, run.graph, values))
    return run.known[place]


def _rounded(place: int, run: Run) -> Column:
    """Return the rounding of an operation at each point."""
    node, result = run.graph.nodes[place], run.values[place]
    if node.fitted is not None:
        return node.fitted * run.range.unit(result)
    if node.known or node.op in EXACT or (node.exact and node.op == "add"):
        return np.zeros(len(result))
    args = [run.values[arg] for arg in node.args]
    gone = np.where(np.abs(result) < GONE, run.range.smallest, 0.0)
    exact = (result == 0) | ~np.isfinite(result) | _is_exact(node, run, result, args)
    return np.where(exact, 0.0, _inexact(node, run, result, args, gone))


def _inexact(node: Node, run: Run, result: Column, args: Sequence[Column], gone: Column) -> Column:
    """Return the rounding of an operation where it is not exact."""
    if node.op in TRANSCENDENTAL:
        size = np.abs(result)
        apart = np.minimum(size, np.abs(size - 1))
        for arg in args:
            apart = np.minimum(apart, np.abs(result - arg))
        found = apart * budget.POLYNOMIAL + gone if node.double_word else _of_function(node, run, result)
        return np.where(apart <= run.none * size, 0.0, found)
    if node.exact:
        return gone
    if node.double_word and node.op in ("add", "sub"):
        largest: Column = np.max(np.abs(args), axis=0)
        return largest * budget.DOUBLE_WORD
    if node.double_word:
        return np.abs(result) * budget.DOUBLE_WORD + gone
    return run.graph.functions.get(node.op, budget.ROUNDING_ULP) * run.range.unit(result)


def _is_exact(node: Node, run: Run, result: Column, args: Sequence[Column]) -> Mask:
    """Where an operation of single words rounds nothing."""
    match node.op:
        case "add" | "sub" if node.double_word and _takes_one_word(node, run):  # Sterbenz 1974
            cancels: Mask = np.abs(result) <= np.minimum(*np.abs(args)) * NEAR_ONE
            return cancels
        case "add" | "sub" if not node.double_word:
            grains = [_grain(arg, run.graph.nodes[k]) for arg, k in zip(args, node.args, strict=True)]
            exact: Mask = np.abs(result) <= np.ldexp(np.minimum(*grains), DIGITS)
            return exact
        case "narrow":
            kept: Mask = run.range(result) == result.astype(np.float32)
            return kept
        case "mul" | "div" if not node.exact:
            by = args if node.op == "mul" else args[1:]
            normal = np.abs(result) >= math.ldexp(1.0, run.range.least + DIGITS - 1)
            powers: Mask = normal & np.any([np.abs(np.frexp(arg)[0]) == 0.5 for arg in by], axis=0)
            return powers
    return np.zeros(len(result), bool)


def _takes_one_word(node: Node, run: Run) -> bool:
    """True if an argument is a single word, beside which the high word of the other cancels exactly."""
    return any(not run.graph.nodes[arg].double_word for arg in node.args)


def _of_function(node: Node, run: Run, result: Column) -> Column:
    """Return the error of a function of single words.

    That of a body SINGLE_RESULT is relative, but for its last rounding, so that it is most ulp where the
    result's significand is largest; there it was measured.
    """
    unit = run.range.unit(result)
    if not node.single_result:
        return node.usual * unit
    last = min(node.usual, budget.ROUNDING_ULP)
    return (last + (node.usual - last) * np.abs(np.frexp(result)[0])) * unit


def _slopes(node: Node, graph: Graph, values: Sequence[Column]) -> Iterator[Column]:
    """Yield the derivatives of an operation's result by each of its arguments."""
    args = [values[arg] for arg in node.args]
    for k, arg in enumerate(node.args):
        if graph.nodes[arg].is_number:
            yield np.zeros(len(args[k]))  # neither a number nor what is too large anyway moves
        else:
            slope = SLOPES[node.op](args)[k] if node.op in SLOPES else _slope(node.op, args, k)
            yield np.where(np.isinf(args[k]), 0.0, slope)


SLOPES: dict[str, Callable[[Sequence[Column]], Sequence[Column | float]]] = {
    "add": lambda _: (1.0, 1.0),
    "sub": lambda _: (1.0, -1.0),
    "mul": lambda args: (args[1], args[0]),
    "neg": lambda _: (-1.0,),
    "narrow": lambda _: (1.0,),
    "sin": lambda args: (np.cos(args[0]),),  # a difference would step over periods of a large argument
    "cos": lambda args: (-np.sin(args[0]),),
    "sinpi": lambda args: (math.pi * column("cospi", args),),
    "cospi": lambda args: (-math.pi * column("sinpi", args),),
    "where": lambda args: (0.0, np.where(args[0] != 0, 1.0, 0.0), np.where(args[0] != 0, 0.0, 1.0)),
}


def _slope(op: str, args: Sequence[Column], k: int) -> Column:
    """The slope by one argument, from its neighbours, or from farther ones where these are the same."""
    step = np.abs(args[k]) * STEP
    slope = _quotient(op, args, k, np.where(step == 0, STEP**3, step))
    if op not in TRANSCENDENTAL or slope.all():
        return slope
    wide = _quotient(op, args, k, np.full(len(step), STEP))
    return np.where((slope == 0) & np.isfinite(wide), wide, slope)


def _quotient(op: str, args: Sequence[Column], k: int, step: Column) -> Column:
    """Return the quotient of differences by one argument."""
    above, below = (column(op, [*args[:k], args[k] + by, *args[k + 1 :]]) for by in (step, -step))
    return (above - below) / (2 * step)


def _grain(numbers: Column, node: Node) -> Column:
    """Return a power of two that a value is a multiple of: of a number its own, else its last place."""
    if not node.is_number:
        return np.where(numbers == 0, math.inf, FLOAT.unit(numbers))
    number = float(node.leaf)
    if not number or not math.isfinite(number):
        return np.full(len(numbers), math.inf)
    numerator, denominator = number.as_integer_ratio()
    return np.full(len(numbers), (numerator & -numerator) / denominator)
