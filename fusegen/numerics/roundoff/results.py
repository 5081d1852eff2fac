"""The movement of one result of a kernel by each operation's rounding, and its estimated error."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from fusegen.core import budget
from fusegen.numerics.ieee import Column
from fusegen.numerics.roundoff.graph import FLOAT, LARGEST
from fusegen.numerics.roundoff.local import Run, local

NEAR_LARGEST = LARGEST / 16  # a result that overflows from here on overflows a little early


def result_errors(end: int, run: Run, real: Column) -> tuple[Column, Sequence[str]]:
    """Return the estimated error of a result at each point, and the operation that contributes most."""
    ulp, result = FLOAT.unit(real), run.values[end]
    parts, most = np.zeros(len(real)), np.full(len(real), -1.0)
    names = sorted({"", *(node.op for node in run.graph.nodes)})  # which numbers compare as, faster
    by = np.zeros(len(real), np.int64)
    for place, lost in losses(end, run):
        op, part = names.index(run.graph.nodes[place].op), lost / ulp
        larger = (part > most) | ((part == most) & (op > by))
        parts, most, by = parts + part, np.where(larger, part, most), np.where(larger, op, by)
    stored = budget.ROUNDING_ULP if run.graph.nodes[end].double_word else 0.0
    found = np.abs(result - real) / ulp + stored + parts
    early = np.isinf(result) & (np.abs(real) > NEAR_LARGEST)
    finite = np.isfinite(result)
    found = np.where(finite, found, np.where(early, np.abs(real) / ulp, math.inf))
    judged = np.abs(real) <= LARGEST
    return np.where(judged, found, 0.0), [names[k] for k in np.where(judged & finite, by, 0)]


def losses(end: int, run: Run) -> Iterator[tuple[int, Column]]:
    """The place of each operation, and by how much its rounding moves a result, from the result back."""
    for place, by in moves(end, run):
        if run.graph.nodes[place].op:
            rounded, _ = local(place, run)
            lost = np.where(by == 0, 0.0, np.abs(by) * rounded)
            yield place, np.where(np.isnan(lost), math.inf, lost)


def moves(end: int, run: Run) -> Iterator[tuple[int, Column]]:
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
