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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from fusegen.core.facts import Roundoff
from fusegen.core.interval import Interval, Point
from fusegen.core.ir import Const, Expr, Kernel, Ref, round_to
from fusegen.numerics.ieee import Column, value
from fusegen.numerics.roundoff.graph import FLOAT, Fitted, Graph, Range
from fusegen.numerics.roundoff.local import Run
from fusegen.numerics.roundoff.results import NEAR_LARGEST, losses, moves, result_errors
from fusegen.numerics.sample import Sample

NORMAL = 2.0**-126  # the least float that has all digits
PLACES = 2.0**-21  # eight times half a last place, relative to a number


@dataclass(frozen=True)
class Errors:
    """The estimated errors of a kernel's results at the points of a sample."""

    ulp: tuple[Column, ...]  # a column for each result, in ulp of the exact result
    # the operation that contributes most, by result and point; none where a value is too large
    by: tuple[Sequence[str], ...]
    points: Sequence[Point]  # of the sample

    @cached_property
    def columns(self) -> Column:
        """The errors in ulp, by point and result."""
        return np.stack(self.ulp, axis=1)

    def at(self, point: int, result: int) -> Roundoff:
        """Return the error of a result at a point."""
        return Roundoff(float(self.ulp[result][point]), self.points[point], self.by[result][point])

    def times(self, scale: float) -> Errors:
        """Return the errors, each times a number."""
        return replace(self, ulp=tuple(ulp * scale for ulp in self.ulp))

    def descending(self) -> Iterator[Roundoff]:
        """Yield the errors, the largest first."""
        for place in np.argsort(-self.columns, axis=None, kind="stable"):
            yield self.at(*divmod(int(place), len(self.ulp)))

    def but(self, given: Callable[[Point], bool], other: Errors | None = None) -> Errors:
        """The errors, those of another kernel at the points that this one does not give; 0 without one."""
        left = np.array([given(point) for point in self.points])
        instead = other.ulp if other else [np.zeros(len(left))] * len(self.ulp)
        ulp = (np.where(left, b, a) for a, b in zip(self.ulp, instead, strict=True))
        return replace(self, ulp=tuple(ulp))


def roundoff(
    kernel: Kernel,
    sample: Sample,
    params: Mapping[str, float],
    *,
    given: Callable[[Point], bool] = lambda point: False,
    within: Range = FLOAT,
    fitted: Fitted = MappingProxyType({}),
) -> Roundoff:
    """Return the largest estimated error of a kernel's results.

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
    kernel: Kernel,  # in float
    sample: Sample,  # points, and the exact results there
    # a value for each of the kernel's parameters, which the kernel has rounded to its type
    params: Mapping[str, float],
    within: Range = FLOAT,  # the range of values on the way
    # the errors of steps that polynomials give, in ulp, by name; 0 of those on the way
    fitted: Fitted = MappingProxyType({}),
) -> Errors:
    """Return the estimated error of each result at each point of a sample."""
    graph, points = Graph(kernel, fitted), sample.points
    with np.errstate(all="ignore"):
        run = Run(graph, within, graph.values(_columns(kernel, sample, params), within))
        reals = (np.array(column) for column in zip(*sample.reals, strict=True))
        found = [result_errors(end, run, real) for end, real in zip(graph.results, reals, strict=True)]
    return Errors(tuple(ulp for ulp, _ in found), tuple(by for _, by in found), points)


def steps(kernel: Kernel, points: Sequence[Point]) -> dict[str, Column]:
    """Return the values of the steps of a kernel without parameters at points, in double, by name."""
    graph = Graph(kernel)
    columns = {name: np.array([point[name] for point in points]) for name in kernel.inputs}
    with np.errstate(all="ignore"):
        values = graph.values(columns, lambda x: x)
    return {let.name: values[graph.known[Ref(let.name, let.word)]] for let in kernel.lets}


def blamed(
    kernel: Kernel,  # in float
    sample: Sample,  # points, and the exact results there
    params: Mapping[str, float],  # a value for each of its parameters
    most: float,  # an error in ulp
) -> frozenset[str]:
    """Name the steps whose rounding moves results most, where these have a larger error than `most`.

    Of a result that is infinite or NaN it is the first step that is. Left out are results that a few last
    places of the inputs move as far: they lie next to a zero.
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
            ulp = result_errors(end, run, real)[0]
            near_zero = np.isfinite(run.values[end]) & (ulp <= _of_inputs(end, run) / FLOAT.unit(real))
            lost = (ulp > most) & ~near_zero
            lost &= np.abs(real) <= NEAR_LARGEST
            largest, by = np.zeros(len(lost)), beyond.copy()
            for place, part in losses(end, run):
                by = np.where((part > largest) & np.isfinite(run.values[end]), place, by)
                largest = np.maximum(part, largest)
            found |= set(owners[by[lost]])
    return frozenset(found - {""})


def _columns(kernel: Kernel, sample: Sample, params: Mapping[str, float]) -> dict[str, Column]:
    """Return the values of a kernel's inputs and parameters at the points of a sample."""
    points = sample.points
    found = {name: np.array([point[name] for point in points]) for name in kernel.inputs}
    return found | {
        name: np.full(len(points), round_to(params[name], kernel.math)) for name in kernel.params
    }


def _of_inputs(end: int, run: Run) -> Column:
    """By how much a result moves with a few last places of its inputs."""
    whole = np.zeros(len(run.values[end]))
    for place, by in moves(end, run):
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
    """Return a kernel of one result, in double, as a function of its last input; any other input is 1."""
    graph = Graph(kernel)
    [end], name = graph.results, kernel.inputs[-1]
    others = {**params, **dict.fromkeys(kernel.inputs, 1.0)}

    def results(of: Sequence[float]) -> list[float]:
        columns = {each: np.full(len(of), number) for each, number in others.items()}
        found: list[float] = graph.values({**columns, name: np.array(of)}, lambda x: x)[end].tolist()
        return found

    return results


def evaluated(expr: Expr, given: Mapping[str, float]) -> float:
    """Return the value of an expression of single words in double, by the values of what it names."""
    match expr:
        case Const(number):
            return number
        case Ref(name):
            return given[name]
    return value(expr.op, [evaluated(arg, given) for arg in expr.args])
