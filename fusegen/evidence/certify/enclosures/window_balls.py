"""Windows in balls: the value of a program with a pooling, and its gradients, as of rows.

Which elements a window has is found here from PyTorch's definition, element by element; this shares nothing
with the kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

from flint import arb
from torch import Tensor

from fusegen.core.poolings import Window
from fusegen.core.term import Program
from fusegen.evidence.certify.enclosures.row_balls import NAN, ZERO, Column, RowBalls, passing

FOLDED = {"amax": lambda ball, y: not ball < y, "amin": lambda ball, y: not ball > y}


@dataclass(frozen=True)
class Elements:
    """The elements of a window, as places in a flat plane, and the divisor of its average."""

    places: tuple[int, ...]
    divisor: int


def elements(window: Window, sizes: tuple[int, ...]) -> list[Elements]:
    """Return the windows of a plane, in their order."""
    made = window.sizes((1, *sizes))[1:]
    return [_elements(window, sizes, at) for at in itertools.product(*map(range, made))]


def _elements(window: Window, sizes: tuple[int, ...], at: tuple[int, ...]) -> Elements:
    columns, counts = [], []
    for d, (size, o) in enumerate(zip(sizes, at, strict=True)):
        if window.output:
            out = window.output[d] or size
            columns.append(
                [i for i in range(size) if o * size < (i + 1) * out and i * out < (o + 1) * size]
            )
            counts.append(len(columns[-1]))
            continue
        begin = o * window.stride[d] - window.padding[d]
        every = [begin + k * window.dilation[d] for k in range(window.kernel[d])]
        padded = [i for i in every if i < size + window.padding[d]]
        columns.append([i for i in every if 0 <= i < size])
        counts.append(len(padded if window.counts_padding else columns[-1]))
    steps = [prod(sizes[d + 1 :]) for d in range(len(sizes))]
    places = (sum(i * step for i, step in zip(p, steps, strict=True)) for p in itertools.product(*columns))
    return Elements(tuple(places), window.divisor or prod(counts))


class WindowBalls(RowBalls):
    """A program with a pooling, with values for its parameters.

    Attributes:
        windows: those of a plane.
        front: for each tensor, whether it is read in the pooling.
    """

    def __init__(
        self,
        program: Program,
        params: Mapping[str, Fraction],
        windows: Sequence[Elements],
        front: Sequence[bool],
    ) -> None:
        super().__init__(program, params)
        self.windows, self.front = windows, front
        self.slopes = first_passing

    def columns(self, tensors: Sequence[Tensor], incoming: Sequence[Tensor]) -> list[list[arb]]:
        """Return value and gradients of planes in balls of the current precision."""
        listed = [[[*map(arb, plane)] for plane in t.double().flatten(1).tolist()] for t in tensors]
        grads = incoming[0].double().flatten(1).tolist()
        value: list[arb] = []
        found: list[list[arb]] = [[] for _ in tensors]
        for plane, incoming_there in enumerate(grads):
            made = [[ZERO] * len(t[plane]) for t in listed]
            for o, (own, g) in enumerate(zip(self.windows, incoming_there, strict=True)):
                slots: list[Column] = [
                    [t[plane][i] for i in own.places] if front else t[plane][o]
                    for t, front in zip(listed, self.front, strict=True)
                ]
                y, *passed = self.of_slots([*slots, arb(own.divisor)], [[g]])
                value.append(y)
                self._add(made, passed, o, own)
            for column, more in zip(found, made, strict=True):
                column += more
        return [value, *found]

    def _add(self, made: list[list[arb]], passed: list[Column], o: int, own: Elements) -> None:
        """Add what a window passes to the elements of the tensors."""
        for column, part, front in zip(made, passed, self.front, strict=True):
            for k, place in enumerate(own.places if front else (o,)):
                column[place] += ZERO if part is None else part[k] if isinstance(part, list) else part


def first_passing(op: str, k: int) -> Callable[..., Any] | None:
    """Return what an operation passes to an argument: the first of largest elements has all of it."""
    if op not in FOLDED:
        return passing(op, k)

    def passed(g: arb, column: list[arb], y: arb) -> list[arb]:
        places = [place for place, ball in enumerate(column) if FOLDED[op](ball, y)]
        first = column[places[0]]
        same = all(_is_same(column[place], first) for place in places)
        return [(g if same else NAN) if place == places[0] else ZERO for place in range(len(column))]

    return passed


def _is_same(ball: arb, other: arb) -> bool:
    return bool(ball.mid() == other.mid() and ball.rad() == other.rad())
