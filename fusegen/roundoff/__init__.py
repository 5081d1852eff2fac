"""The estimated error of a kernel's results, in ulps of the exact result.

A kernel is evaluated in double at a sample of inputs. From the result back it is found how far the result
moves with each operation; an operation contributes its rounding error times that. The sum also has the
distance of that result from the exact one, which is large where a value overflows or underflows in float.
The largest usual error of every operation is added up. This is no bound: between samples errors may be
larger. `certify` tests every input. With another math library than this host's an estimate changes in its
thirteenth digit.

Source: Bauer 1974, Computational graphs and rounding error, SIAM J. Numer. Anal. 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fusegen import budget
from fusegen.facts import Roundoff
from fusegen.ir import Const, Expr, Kernel, Ref, held
from fusegen.ops import TRANSCENDENTAL
from fusegen.roundoff.graph import DIGITS, FLOAT, LARGEST, Graph, Node, Range
from fusegen.sample import Point, Sample
from fusegen.values import DECIDED, Column, column, value

NEAR_LARGEST = LARGEST / 16  # a result that overflows from here on overflows a little early
GONE = 2.0**-102  # the size below which the low word of a double-word underflows
NONE = 2.0**-27  # of a value that is as near to its argument, or to 1, and is that
# what passes a value on as it is, or one of several
EXACT = frozenset(
    (*DECIDED, "neg", "abs", "sign", "relu", "relu6", "clamp", "saturate", "clamp_min", "clamp_max",
     "minimum", "maximum", "finite_below", "finite_above", "words", "lifted", "lift_back", "capped",
     "sum", "by_width", "rounded")
)  # fmt: skip

Mask = npt.NDArray[np.bool_]  # a truth value for each point


@dataclass(frozen=True)
class Errors:
    """The estimated errors of a kernel's results at the points of a sample.

    Attributes:
        ulp: a column for each result, in ulp of the exact result.
        by: the operation that contributes most, by result and point; none where a value is too large.
        points: of the sample.
    """

    ulp: tuple[Column, ...]
    by: tuple[Sequence[str], ...]
    points: Sequence[Point]

    def descending(self) -> Iterator[Roundoff]:
        """The errors, the largest first."""
        every = np.stack(self.ulp, axis=1)
        for place in np.argsort(-every, axis=None, kind="stable"):
            point, result = divmod(int(place), len(self.ulp))
            yield Roundoff(float(every[point, result]), self.points[point], self.by[result][point])


@dataclass(frozen=True)
class _Run:
    """A kernel's operations with their values at all points.

    Attributes:
        graph: the operations.
        range: of their values.
        values: a column for each.
        known: what operations round and their slopes, once they are known; the same for every result.
    """

    graph: Graph
    range: Range
    values: Sequence[Column]
    known: dict[int, tuple[Column, list[Column]]] = field(default_factory=dict)


def roundoff(
    kernel: Kernel,
    sample: Sample,
    params: Mapping[str, float],
    *,
    given: Callable[[Point], bool] = lambda point: False,
    within: Range = FLOAT,
) -> Roundoff:
    """The largest estimated error of a kernel's results.

    Args:
        kernel: in float.
        sample: points, and the exact results there.
        params: a value for each of the kernel's parameters.
        given: whether polynomials give the result at a point instead of the kernel.
        within: the range of values on the way, which have float's digits.
    """
    found = errors(kernel, sample, params, within).descending()
    return next((error for error in found if not given(error.at)), Roundoff(0.0, {}, ""))


def errors(kernel: Kernel, sample: Sample, params: Mapping[str, float], within: Range = FLOAT) -> Errors:
    """The estimated error of each result at each point of a sample.

    Args:
        kernel: in float.
        sample: points, and the exact results there.
        params: a value for each of the kernel's parameters, which the kernel has rounded to its type.
        within: the range of values on the way.
    """
    graph, points = Graph(kernel), sample.points
    columns = {name: np.array([point[name] for point in points]) for name in kernel.inputs}
    columns |= {name: np.full(len(points), held(params[name], kernel.math)) for name in kernel.params}
    with np.errstate(all="ignore"):
        run = _Run(graph, within, graph.values(columns, within))
        reals = (np.array(column) for column in zip(*sample.reals, strict=True))
        found = [_errors(end, run, real) for end, real in zip(graph.results, reals, strict=True)]
    return Errors(tuple(ulp for ulp, _ in found), tuple(by for _, by in found), points)


def function(kernel: Kernel, params: Mapping[str, float]) -> Callable[[Sequence[float]], list[float]]:
    """A kernel of one result as a function of its last input, in double; any other input is 1.

    Args:
        kernel: in double.
        params: a value for each of its parameters.
    """
    graph = Graph(kernel)
    [end], name = graph.results, kernel.inputs[-1]
    others = {**params, **dict.fromkeys(kernel.inputs, 1.0)}

    def results(of: Sequence[float]) -> list[float]:
        columns = {each: np.full(len(of), number) for each, number in others.items()}
        found: list[float] = graph.values({**columns, name: np.array(of)}, lambda x: x)[end].tolist()
        return found

    return results


def evaluated(expr: Expr, given: Mapping[str, float]) -> float:
    """What an expression of single words gives in double, by the values of what it names."""
    match expr:
        case Const(number):
            return number
        case Ref(name):
            return given[name]
    return value(expr.op, [evaluated(arg, given) for arg in expr.args])


def _errors(end: int, run: _Run, real: Column) -> tuple[Column, Sequence[str]]:
    """The estimated error of a result at each point, and the operation that contributes most.

    Args:
        end: the place of the result.
        run: the operations with their values.
        real: the exact results.
    """
    ulp, result = FLOAT.unit(real), run.values[end]
    parts, most = np.zeros(len(real)), np.full(len(real), -1.0)
    by = np.full(len(real), "", dtype=object)
    for node, lost in _losses(end, run):
        part = lost / ulp
        larger = (part > most) | ((part == most) & (node.op > by))
        parts, most, by = parts + part, np.where(larger, part, most), np.where(larger, node.op, by)
    stored = budget.ROUNDING if run.graph.nodes[end].double_word else 0.0
    found = np.abs(result - real) / ulp + stored + parts
    early = np.isinf(result) & (np.abs(real) > NEAR_LARGEST)
    finite = np.isfinite(result)
    found = np.where(finite, found, np.where(early, np.abs(real) / ulp, math.inf))
    judged = np.abs(real) <= LARGEST
    return np.where(judged, found, 0.0), np.where(judged & finite, by, "").tolist()


def _losses(end: int, run: _Run) -> Iterator[tuple[Node, Column]]:
    """By how much each operation's rounding moves a result, from the result back."""
    none = np.zeros(len(run.values[end]))
    moved = {end: none + 1.0}
    for place in range(end, -1, -1):
        node, by = run.graph.nodes[place], moved.pop(place, none)
        if not node.op or not by.any():
            continue
        rounded, slopes = _local(place, run)
        lost = np.where(by == 0, 0.0, np.abs(by) * rounded)
        yield node, np.where(np.isnan(lost), math.inf, lost)
        for arg, slope in zip(node.args, slopes, strict=True):
            moved[arg] = moved.get(arg, none) + np.where((by == 0) | (slope == 0), 0.0, by * slope)


def _local(place: int, run: _Run) -> tuple[Column, list[Column]]:
    """What an operation rounds, and its slopes by its arguments."""
    if place not in run.known:
        node, values = run.graph.nodes[place], run.values
        run.known[place] = _rounded(place, run), list(_slopes(node, run.graph, values))
    return run.known[place]


def _rounded(place: int, run: _Run) -> Column:
    """What an operation rounds at each point."""
    node, result = run.graph.nodes[place], run.values[place]
    if node.op in EXACT:
        return np.zeros(len(result))
    args = [run.values[arg] for arg in node.args]
    gone = np.where(np.abs(result) < GONE, run.range.smallest, 0.0)
    exact = (result == 0) | ~np.isfinite(result) | _is_exact(node, run, result, args)
    return np.where(exact, 0.0, _inexact(node, run, result, args, gone))


def _inexact(node: Node, run: _Run, result: Column, args: Sequence[Column], gone: Column) -> Column:
    """What an operation rounds where it is not exact."""
    if node.op in TRANSCENDENTAL:
        return _approximated(node, run, result, args, gone)
    if node.op == "product":
        return gone
    if node.double_word and node.op in ("add", "sub"):
        largest: Column = np.max(np.abs(args), axis=0)
        return largest * budget.DOUBLE_WORD
    if node.double_word:
        return np.abs(result) * budget.DOUBLE_WORD + gone
    return budget.FUNCTIONS.get(node.op, budget.ROUNDING) * run.range.unit(result)


def _is_exact(node: Node, run: _Run, result: Column, args: Sequence[Column]) -> Mask:
    """Where an operation of single words rounds nothing."""
    match node.op:
        case "add" | "sub" if not node.double_word:
            grains = [_grain(arg, run.graph.nodes[k]) for arg, k in zip(args, node.args, strict=True)]
            exact: Mask = np.abs(result) <= np.ldexp(np.minimum(*grains), DIGITS)
            return exact
        case "narrow":
            kept: Mask = run.range(result) == result.astype(np.float32)
            return kept
        case "mul" | "div":
            by = args if node.op == "mul" else args[1:]
            normal = np.abs(result) >= math.ldexp(1.0, run.range.least + DIGITS - 1)
            powers: Mask = normal & np.any([np.abs(np.frexp(arg)[0]) == 0.5 for arg in by], axis=0)
            return powers
    return np.zeros(len(result), bool)


def _approximated(node: Node, run: _Run, result: Column, args: Sequence[Column], gone: Column) -> Column:
    """The error of a function; none where it is its argument or 1 in every digit."""
    size = np.abs(result)
    apart = np.minimum(size, np.abs(size - 1))
    for arg in args:
        apart = np.minimum(apart, np.abs(result - arg))
    own = budget.FUNCTIONS.get(node.op, budget.FUNCTION)
    found = apart * budget.POLYNOMIAL + gone if node.double_word else own * run.range.unit(result)
    return np.where(apart <= NONE * size, 0.0, found)


def _slopes(node: Node, graph: Graph, values: Sequence[Column]) -> Iterator[Column]:
    """How far an operation's result moves with each of its arguments."""
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
    "product": lambda args: (args[1], args[0]),
    "sum": lambda _: (1.0, 1.0),
    "neg": lambda _: (-1.0,),
    "narrow": lambda _: (1.0,),
    "where": lambda args: (0.0, np.where(args[0] != 0, 1.0, 0.0), np.where(args[0] != 0, 0.0, 1.0)),
}


def _slope(op: str, args: Sequence[Column], k: int) -> Column:
    """The slope by one argument, from its neighbours."""
    step = np.abs(args[k]) * 2.0**-20
    step = np.where(step == 0, 2.0**-60, step)
    above, below = (column(op, [*args[:k], args[k] + by, *args[k + 1 :]]) for by in (step, -step))
    return (above - below) / (2 * step)


def _grain(numbers: Column, node: Node) -> Column:
    """A power of two that a value is a multiple of: of a number its own, else its last place."""
    if not node.is_number:
        return np.where(numbers == 0, math.inf, FLOAT.unit(numbers))
    number = float(node.leaf)
    if not number or not math.isfinite(number):
        return np.full(len(numbers), math.inf)
    numerator, denominator = number.as_integer_ratio()
    return np.full(len(numbers), (numerator & -numerator) / denominator)
