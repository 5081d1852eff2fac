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
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from fusegen import budget
from fusegen.facts import Roundoff
from fusegen.interval import Interval
from fusegen.ir import Const, Expr, Kernel, Ref, round_to
from fusegen.roundoff.graph import FLOAT, LARGEST, Fitted, Graph, Range
from fusegen.roundoff.local import Run, local
from fusegen.sample import Point, Sample
from fusegen.values import Column, value

NORMAL = 2.0**-126  # the least float that has all digits
PLACES = 2.0**-21  # eight times half a last place, relative to a number
NEAR_LARGEST = LARGEST / 16  # a result that overflows from here on overflows a little early


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


def roundoff(
    kernel: Kernel,
    sample: Sample,
    params: Mapping[str, float],
    *,
    given: Callable[[Point], bool] = lambda point: False,
    within: Range = FLOAT,
    fitted: Fitted = MappingProxyType({}),
) -> Roundoff:
    """The largest estimated error of a kernel's results.

    Args:
        kernel: in float.
        sample: points, and the exact results there.
        params: a value for each of the kernel's parameters.
        given: whether polynomials give the result at a point instead of the kernel.
        within: the range of values on the way, which have float's digits.
        fitted: the errors of steps that polynomials give, in ulp, by name; 0 of those on the way.
    """
    found = errors(kernel, sample, params, within, fitted).descending()
    return next((error for error in found if not given(error.at)), Roundoff(0.0, {}, ""))


def errors(
    kernel: Kernel,
    sample: Sample,
    params: Mapping[str, float],
    within: Range = FLOAT,
    fitted: Fitted = MappingProxyType({}),
) -> Errors:
    """The estimated error of each result at each point of a sample.

    Args:
        kernel: in float.
        sample: points, and the exact results there.
        params: a value for each of the kernel's parameters, which the kernel has rounded to its type.
        within: the range of values on the way.
        fitted: the errors of steps that polynomials give, in ulp, by name; 0 of those on the way.
    """
    graph, points = Graph(kernel, fitted), sample.points
    with np.errstate(all="ignore"):
        run = Run(graph, within, graph.values(_columns(kernel, sample, params), within))
        reals = (np.array(column) for column in zip(*sample.reals, strict=True))
        found = [_errors(end, run, real) for end, real in zip(graph.results, reals, strict=True)]
    return Errors(tuple(ulp for ulp, _ in found), tuple(by for _, by in found), points)


def steps(kernel: Kernel, points: Sequence[Point]) -> dict[str, Column]:
    """The values of a kernel's steps at some points, in double, by name.

    Args:
        kernel: without parameters.
        points: a value for each of its inputs.
    """
    graph = Graph(kernel)
    columns = {name: np.array([point[name] for point in points]) for name in kernel.inputs}
    with np.errstate(all="ignore"):
        values = graph.values(columns, lambda x: x)
    return {let.name: values[graph.known[Ref(let.name, let.word)]] for let in kernel.lets}


def blamed(kernel: Kernel, sample: Sample, params: Mapping[str, float], most: float) -> frozenset[str]:
    """Name the steps whose rounding moves results most, where these have a larger error than `most`.

    Of a result that is infinite or NaN it is the first step that is. Left out are results that a few last
    places of the inputs move as far: they lie next to a zero.

    Args:
        kernel: in float.
        sample: points, and the exact results there.
        params: a value for each of its parameters.
        most: an error in ulp.
    """
    graph = Graph(kernel)
    owners = np.array([""] * len(graph.nodes), dtype=object)
    for let in reversed(kernel.lets):
        owners[: graph.known[Ref(let.name, let.word)] + 1] = let.name
    found: set[str] = set()
    with np.errstate(all="ignore"):
        run = Run(graph, FLOAT, graph.values(_columns(kernel, sample, params), FLOAT))
        beyond = np.argmax([~np.isfinite(values) for values in run.values], axis=0)
        for end, reals in zip(graph.results, zip(*sample.reals, strict=True), strict=True):
            real = np.array(reals)
            ulp = _errors(end, run, real)[0]
            lost = (ulp > most) & ~(ulp <= _of_inputs(end, run) / FLOAT.unit(real))
            lost &= np.abs(real) <= NEAR_LARGEST
            largest, by = np.zeros(len(lost)), beyond.copy()
            for place, part in _losses(end, run):
                by = np.where((part > largest) & np.isfinite(run.values[end]), place, by)
                largest = np.maximum(part, largest)
            found |= set(owners[by[lost]])
    return frozenset(found - {""})


def _columns(kernel: Kernel, sample: Sample, params: Mapping[str, float]) -> dict[str, Column]:
    """The values of a kernel's inputs and parameters at the points of a sample."""
    points = sample.points
    found = {name: np.array([point[name] for point in points]) for name in kernel.inputs}
    return found | {
        name: np.full(len(points), round_to(params[name], kernel.math)) for name in kernel.params
    }


def _of_inputs(end: int, run: Run) -> Column:
    """By how much a result moves with a few last places of its inputs."""
    whole = np.zeros(len(run.values[end]))
    for place, by in _moves(end, run):
        if isinstance(run.graph.nodes[place].leaf, str) and not run.graph.nodes[place].op:
            whole = whole + np.abs(by * run.values[place]) * PLACES
    return whole


def inside(values: Column, *intervals: Interval) -> Column:
    """1 for the values that lie in one of some intervals, 0 for the others."""
    found = np.zeros(len(values))
    for each in intervals:
        found = np.where((values >= float(each.low)) & (values <= float(each.high)), 1.0, found)
    return found


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
    """The value of an expression of single words in double, by the values of what it names."""
    match expr:
        case Const(number):
            return number
        case Ref(name):
            return given[name]
    return value(expr.op, [evaluated(arg, given) for arg in expr.args])


def _errors(end: int, run: Run, real: Column) -> tuple[Column, Sequence[str]]:
    """The estimated error of a result at each point, and the operation that contributes most.

    Args:
        end: the place of the result.
        run: the operations with their values.
        real: the exact results.
    """
    ulp, result = FLOAT.unit(real), run.values[end]
    parts, most = np.zeros(len(real)), np.full(len(real), -1.0)
    by = np.full(len(real), "", dtype=object)
    for place, lost in _losses(end, run):
        node, part = run.graph.nodes[place], lost / ulp
        larger = (part > most) | ((part == most) & (node.op > by))
        parts, most, by = parts + part, np.where(larger, part, most), np.where(larger, node.op, by)
    stored = budget.ROUNDING_ULP if run.graph.nodes[end].double_word else 0.0
    found = np.abs(result - real) / ulp + stored + parts
    early = np.isinf(result) & (np.abs(real) > NEAR_LARGEST)
    finite = np.isfinite(result)
    found = np.where(finite, found, np.where(early, np.abs(real) / ulp, math.inf))
    judged = np.abs(real) <= LARGEST
    return np.where(judged, found, 0.0), np.where(judged & finite, by, "").tolist()


def _losses(end: int, run: Run) -> Iterator[tuple[int, Column]]:
    """The place of each operation, and by how much its rounding moves a result, from the result back."""
    for place, by in _moves(end, run):
        if run.graph.nodes[place].op:
            rounded, _ = local(place, run)
            lost = np.where(by == 0, 0.0, np.abs(by) * rounded)
            yield place, np.where(np.isnan(lost), math.inf, lost)


def _moves(end: int, run: Run) -> Iterator[tuple[int, Column]]:
    """Yield the place of each value that moves a result, and the slope by it, from the result back."""
    none = np.zeros(len(run.values[end]))
    moved = {end: none + 1.0}
    for place in range(end, -1, -1):
        node, by = run.graph.nodes[place], moved.pop(place, none)
        if not by.any():
            continue
        yield place, by
        if node.op:
            for arg, slope in zip(node.args, local(place, run)[1], strict=True):
                moved[arg] = moved.get(arg, none) + np.where((by == 0) | (slope == 0), 0.0, by * slope)
