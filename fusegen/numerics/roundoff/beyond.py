"""Results that are lost because a value on the way is too large or too small for float.

A kernel is evaluated twice at the same points, in the range of float and in that of double; arithmetic is
double's in both. Where results differ, their digits were lost in an overflow or an underflow.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from fusegen.core.interval import REALS, Interval
from fusegen.core.ir import Kernel, Math, Ref
from fusegen.numerics.ieee import Column
from fusegen.numerics.roundoff.graph import DOUBLE, LARGEST, Graph
from fusegen.numerics.roundoff.local import Mask

NORMAL, FAR = 2.0**-126, LARGEST / 16  # results that are judged
LOST = 2.0**-18  # of a result: 64 ulp
EXPONENTS = range(-149, 128, 3)  # of one name while the others have ordinary values, or all have this one
TOGETHER = 192  # points at which every name has any size
SEED = 49
Point = Mapping[str, Column]


def points(
    kernel: Kernel, incoming: str, params: Mapping[str, float], assume: Mapping[str, Interval]
) -> dict[str, Column]:
    """The values that inputs and parameters are tried at, of every size; the incoming gradient is 1."""
    moving = tuple(name for name in kernel.inputs if name != incoming)
    found = _tried((*moving, *(name for name in kernel.params if name in params)))
    columns = {name: found[:, k] for k, name in enumerate(moving)}
    own = {name: number for name, number in params.items() if name in kernel.params}
    columns |= {name: np.full(len(found), number) for name, number in own.items()}
    if own:
        changed = {
            name: found[:, len(moving) + k] for k, name in enumerate(n for n in kernel.params if n in own)
        }
        columns = {name: np.concatenate([c, changed.get(name, c)]) for name, c in columns.items()}
    [size] = {len(c) for c in columns.values()} or {1}
    inside = np.ones(size, bool)
    for name in moving:
        interval = assume.get(name, REALS)
        inside &= (columns[name] >= float(interval.low)) & (columns[name] <= float(interval.high))
    return {name: c[inside] for name, c in columns.items()} | {incoming: np.ones(int(inside.sum()))}


@lru_cache(maxsize=64)
def _tried(names: tuple[str, ...]) -> Column:
    """Return a row of values for each point."""
    draw = random.Random(SEED)
    rows: list[list[float]] = []
    for exponent in EXPONENTS:
        size = draw.uniform(1, 2) * 2.0**exponent
        rows += [[size] * len(names), [-size] * len(names)]
        for k in range(len(names)):
            rows.append([size if k == j else draw.uniform(-4, 4) for j in range(len(names))])
    for _ in range(TOGETHER if len(names) > 1 else 0):
        rows.append([draw.choice((-1, 1)) * 2.0 ** draw.uniform(-120, 120) for _ in names])
    return np.array(rows, np.float64).astype(np.float32).astype(np.float64).reshape(-1, len(names))


class _Stored:
    """Numbers as floats hold them, but for the digits of ordinary ones."""

    def __call__(self, numbers: Column) -> Column:
        """Return numbers, infinite where too large, rounded to the grid of subnormals where small."""
        sizes = np.abs(numbers)
        found = np.where(sizes > LARGEST, np.copysign(np.inf, numbers), numbers)
        small = (sizes < NORMAL) & (sizes > 0)
        return np.where(small, found.astype(np.float32), found) if small.any() else found


def _both(kernel: Kernel, columns: Point) -> tuple[Graph, list[Column], list[Column]]:
    """Return the values of each operation in the range of float, and of double."""
    graph = Graph(replace(kernel, math=Math.DOUBLE))
    with np.errstate(all="ignore"):
        return graph, graph.values(columns, _Stored()), graph.values(columns, DOUBLE)


def _apart(narrow: Column, wide: Column) -> Mask:
    with np.errstate(all="ignore"):
        near: Mask = np.abs(narrow - wide) <= LOST * np.abs(wide)
    return ~near


def _lost(narrow: Column, wide: Column) -> Mask:
    judged: Mask = (np.abs(wide) >= NORMAL) & (np.abs(wide) <= FAR)
    return judged & _apart(narrow, wide)


def lost_in_range(kernel: Kernel, columns: Point) -> tuple[int, int]:
    """Return the numbers of results that an overflow or an underflow loses: those that are NaN, and all."""
    graph, narrow, wide = _both(kernel, columns)
    every = [(_lost(narrow[end], wide[end]), np.isnan(narrow[end])) for end in graph.results]
    return sum(int((lost & nan).sum()) for lost, nan in every), sum(int(lost.sum()) for lost, _ in every)


def first_beyond(kernel: Kernel, columns: Point) -> frozenset[str]:
    """Return the steps of a kernel in which results are lost: the first that differs, by result and point.

    None, if no result is lost at the defaults of parameters, the first half of the points.
    """
    graph, narrow, wide = _both(kernel, columns)
    half = slice(0, -(-len(narrow[0]) // (2 if kernel.params else 1)))
    if not any(_lost(narrow[end][half], wide[end][half]).any() for end in graph.results):
        return frozenset()
    places = [graph.known[Ref(let.name, let.word)] for let in kernel.lets]
    apart = np.array([_apart(narrow[place], wide[place]) for place in places]).reshape(len(places), -1)
    found: set[str] = set()
    for end in graph.results:
        lost = _lost(narrow[end], wide[end])
        found |= {kernel.lets[k].name for k in _first(apart[:, lost])}
    return frozenset(found)


def _first(apart: Mask) -> Iterable[int]:
    """Return the place of the first row that holds, by column."""
    found: Sequence[int] = np.argmax(apart, axis=0)[apart.any(axis=0)].tolist() if apart.size else []
    return set(found)
