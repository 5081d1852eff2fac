"""The results of both passes of a program in IEEE arithmetic, each operation rounded as floats are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fusegen.core.ir import Kernel, Math, round_to
from fusegen.core.method import Both, Pass
from fusegen.numerics.ieee import Column
from fusegen.numerics.roundoff.graph import DOUBLE, LARGEST, Graph
from fusegen.numerics.roundoff.local import GONE

LEAST = 2.0**-149  # the least float
FAR = 2.0**126
SUMS = ("add", "sub")
# functions that bound their argument themselves, of x times what falls
LIMITED = frozenset(
    "times_ndtr times_ndtr_slope x_sigmoid times_sigmoid x_sigmoid_slope times_tanh_softplus "
    "times_tanh_softplus_slope".split()
)
Points = Mapping[str, Column]
Rounding = Callable[[Column], Column]


@dataclass(frozen=True)
class Values:
    """The results of kernels at points, as floats."""

    kernels: Both[Kernel]  # of both passes; a gradient may read the value that the other one gives
    # the values of scalars, and of what only they decide; a column where they are others at each point
    params: Mapping[str, float | Column]

    @property
    def rounded(self) -> tuple[Rounding, ...]:
        """The roundings of double-word values and of single words."""
        return _stored, in_float

    def scalar(self, number: float | Column, kind: Math) -> float | Column:
        """Return a scalar as a kernel has it."""
        if isinstance(number, np.ndarray):
            return in_float(number) if kind is Math.FLOAT else number
        return round_to(number, kind)

    def at(self, which: Pass, points: Points, incoming: float | Column = 1.0) -> dict[int, Column]:
        """Return a pass's results (0 the value, k the k-th gradient), of a column for each input."""
        return {
            output: in_float(found) for output, found in self.unrounded(which, points, incoming).items()
        }

    def unrounded(self, which: Pass, points: Points, incoming: float | Column = 1.0) -> dict[int, Column]:
        """Return the same before results are rounded to floats."""
        graph, values = self._run(which, points, incoming)
        return dict(zip(self._outputs(which), (values[end] for end in graph.results), strict=True))

    def column(self, which: Pass, points: Points) -> Column:
        """Return the only result of a pass, before it is rounded to a float."""
        [found] = self.unrounded(which, points).values()
        return found

    def sizes(self, which: Pass, points: Points) -> Column:
        """Return the size of each value on the way that finite ones give, else 0, by value and point."""
        graph, values = self._run(which, points, 1.0)
        finite = [np.isfinite(found) for found in values]
        kept = [
            np.where(np.all([finite[arg] for arg in node.args], axis=0), np.abs(found), 0.0)
            for node, found in zip(graph.nodes, values, strict=True)
            if node.args
        ]
        sizes: Column = np.nan_to_num(np.array(kept), nan=0.0, posinf=np.inf)
        return sizes

    def sums(self, which: Pass, points: Points) -> Column:
        """Return each sum on the way, by sum and point."""
        graph, values = self._run(which, points, 1.0)
        return np.array([found for node, found in zip(graph.nodes, values, strict=True) if node.op in SUMS])

    def _run(self, which: Pass, points: Points, incoming: float | Column) -> tuple[Graph, list[Column]]:
        kernel = self.kernels[which]
        count = len(next(iter(points.values())))
        given = {name: points[name] for name in kernel.inputs if name in points}
        grad, *outputs = [name for name in kernel.inputs if name not in points] or [""]
        given |= {grad: np.broadcast_to(np.asarray(incoming, float), count)} if grad else {}
        given |= {name: self.at(Pass.FORWARD, points)[0] for name in outputs}
        scalars = {name: self.scalar(self.params[name], kernel.math) for name in kernel.params}
        given |= {name: np.broadcast_to(np.asarray(number), count) for name, number in scalars.items()}
        graph, kept = self._graphs[which], self.rounded if kernel.math is Math.FLOAT else (DOUBLE,)
        with np.errstate(all="ignore"):
            return graph, graph.values(given, *kept)

    @cached_property
    def _graphs(self) -> Both[Graph]:
        """The operations of both kernels, which a bisection evaluates forty times."""
        return self.kernels.map(_Kernel)

    def _outputs(self, which: Pass) -> Sequence[int]:
        kernel = self.kernels[which]
        if which is Pass.FORWARD:
            return (0,)
        return tuple(1 + owner for owner in kernel.owners or range(len(kernel.results)))


class InPieces(Values):
    """The results of polynomials in pieces: a zero of theirs has the sign of what is next to it."""

    def at(self, which: Pass, points: Points, incoming: float | Column = 1.0) -> dict[int, Column]:
        """Return the results of a pass by output."""
        found = super().at(which, points, incoming)
        moved = {name: np.where(x == 0, np.copysign(LEAST, x), x) for name, x in points.items()}
        near = super().at(which, moved, incoming)
        return {
            output: np.where((own == 0) & (near[output] != 0), np.copysign(own, near[output]), own)
            for output, own in found.items()
        }


class InRange(Values):
    """The results with all digits of doubles, in the range of float."""

    @property
    def rounded(self) -> tuple[Rounding, ...]:
        """The rounding of all values."""
        return (_stored,)


class Unbounded(Values):
    """The results with all digits of doubles, in the range of double."""

    @property
    def rounded(self) -> tuple[Rounding, ...]:
        """The rounding of all values."""
        return (DOUBLE,)


class Unrounded(Unbounded):
    """The results with all digits of doubles, of the scalars as they are given."""

    def scalar(self, number: float | Column, kind: Math) -> float | Column:
        """Return a scalar as it is."""
        return number


class _Kernel(Graph):
    """A kernel whose functions have their limits at infinity."""

    def computed(self, op: str, args: Sequence[Column]) -> Column:
        """Return the values of an operation, where they are NaN those for large numbers."""
        found = super().computed(op, args)
        if op not in LIMITED or not np.isnan(found).any():
            return found
        large = super().computed(op, [np.clip(arg, -FAR, FAR) for arg in args])
        return np.where(np.isnan(found), large, found)


def in_float(numbers: Column) -> Column:
    """Return numbers rounded to floats."""
    with np.errstate(all="ignore"):
        return numbers.astype(np.float32).astype(np.float64)


def _stored(numbers: Column) -> Column:
    """Return double-word values as floats hold them: low words are multiples of the least float."""
    sizes = np.abs(numbers)
    found = np.where(sizes > LARGEST, np.copysign(np.inf, numbers), numbers)
    small = (sizes < GONE) & (sizes > 0)
    return np.where(small, np.rint(found / LEAST) * LEAST, found) if small.any() else found
