"""Rows in balls: the value of a program with folds, and its gradients, to as many bits as they need.

A column is a list of balls, one for each element, or one ball where the row has one. Gradients are found in
reverse mode, by the slope of each operation in power series; this shares nothing with `derive_rows`, which
it judges. The gradient of a largest element is shared evenly by equal ones, as PyTorch's.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache, partial, reduce
from itertools import repeat
from typing import Any

from flint import arb, arb_series, fmpq
from torch import Tensor

from fusegen.core.folds import FOLDS, LENGTH
from fusegen.core.scans import SCANS, WRITTEN
from fusegen.core.term import Program
from fusegen.evidence.certify.enclosures.ball_functions import ROWS
from fusegen.evidence.certify.enclosures.scan_balls import first_place, scan_slope, scanned
from fusegen.evidence.certify.enclosures.steps import Steps

ZERO, NAN = arb(0), arb(math.nan)
Column = Any  # a list of balls or one; of a condition, of bool and None
Slopes = Callable[[str, int], Callable[..., Any] | None]


class RowBalls(Steps):
    """A program with values for its parameters."""

    def __init__(self, program: Program, params: Mapping[str, Fraction]) -> None:
        super().__init__(program, params, LENGTH)
        self.slopes: Slopes = passing
        self.inputs = len(program.inputs)
        self.varying = set(range(self.inputs))  # the slots that gradients pass
        for slot, (_, args) in enumerate(self.steps, self.given):
            if self.varying.intersection(args):
                self.varying.add(slot)

    def columns(self, tensors: Sequence[Tensor], incoming: Sequence[Tensor]) -> list[list[arb]]:
        """Return values and gradients of rows in balls of the current precision."""
        length = tensors[0].shape[1]
        listed = [t.double().repeat_interleave(length // t.shape[-1], -1).tolist() for t in tensors]
        grads = zip(*(g.double().reshape(len(tensors[0]), -1).tolist() for g in incoming), strict=True)
        each = [
            self.of_row([t[i] if isinstance(t[0], list) else t for t in listed], grad)
            for i, grad in enumerate(grads)
        ]
        count = len(self.results)
        every = [[row[k] for row in each] for k in range(count + len(tensors))]
        for_all = [t.dim() < tensors[0].dim() for t in tensors]
        of_row = [length > 1 == t.shape[-1] and t.dim() > 1 for t in tensors]
        found: list[Any] = [
            [sum(row, ZERO) for row in of] if one else of
            for one, of in zip(of_row, every[count:], strict=True)
        ]
        summed = zip(tensors, for_all, found, strict=True)
        return [
            *map(_joined, every[:count]),
            *(_added(of, len(t)) if one else _joined(of) for t, one, of in summed),
        ]

    def of_row(
        self, inputs: Sequence[Sequence[float]], incoming: Sequence[Sequence[float]]
    ) -> list[Column]:
        """Return the values of a row and the gradient by each input, at the current precision."""
        slots: list[Column] = [[*map(arb, column)] for column in inputs]
        found, count = self.of_slots([*slots, arb(len(slots[0]))], incoming), len(self.results)
        return [*found[:count], *(_whole(column, len(slots[0])) for column in found[count:])]

    def of_slots(self, slots: list[Column], incoming: Sequence[Sequence[float]]) -> list[Column]:
        """Return the values and what they pass to each input, of these and the number of elements."""
        for op, args in self.steps:
            slots.append(_value(op, [slots[arg] for arg in args]))
        made = [slots[result] for result in self.results]
        passed: list[Column] = [None] * len(slots)
        for slot, value, grads in zip(self.results, made, incoming, strict=True):
            part = [*map(arb, grads)] if isinstance(value, list) else arb(grads[0])
            passed[slot] = part if passed[slot] is None else _each(operator.add, [passed[slot], part])
        for slot in reversed(range(self.given, len(slots))):
            if passed[slot] is not None:
                self._back(slot, passed, slots)
        return [*made, *passed[: self.inputs]]

    def _back(self, slot: int, passed: list[Column], slots: list[Column]) -> None:
        """Add what an operation passes to its arguments."""
        op, args = self.steps[slot - self.given]
        y, given = slots[slot], [slots[arg] for arg in args]
        g = _whole(passed[slot], len(y)) if isinstance(y, list) else passed[slot]
        for k, arg in enumerate(args):
            function = self.slopes(op, k) if arg in self.varying else None
            if function is None:
                continue
            whole = op in FOLDS or op in SCANS
            part = function(g, *given, y) if whole else _each(function, [g, *given, y])
            if isinstance(part, list) and not isinstance(slots[arg], list):
                part = sum(part, ZERO)
            passed[arg] = part if passed[arg] is None else _each(operator.add, [passed[arg], part])


def _whole(column: Column, length: int) -> list[arb]:
    return column if isinstance(column, list) else [ZERO if column is None else column] * length


def _each(function: Callable[..., Any], args: Sequence[Column]) -> Column:
    """Return a function of each element, or of the row where no argument has elements."""
    if not any(isinstance(arg, list) for arg in args):
        return function(*args)
    return [*map(function, *(arg if isinstance(arg, list) else repeat(arg) for arg in args))]


def _value(op: Any, args: list[Column]) -> Column:
    if isinstance(op, Fraction):
        return arb(fmpq(op.numerator, op.denominator))
    return FOLDED[op](args[0]) if op in FOLDED else _each(VALUES.get(op) or _by_series(op), args)


def _shared(g: arb, column: list[arb], y: arb) -> list[arb]:
    """Return what equal elements pass of the gradient of the largest; NaN where balls leave them open."""
    are = [not ball < y for ball in column]
    found = [ball for ball, is_y in zip(column, are, strict=True) if is_y]
    known = len(found) == 1 or all(ball.is_exact() and ball == found[0] for ball in found)
    share = g / len(found) if known else NAN
    return [share if is_y else ZERO for is_y in are]


def _of_first(g: arb, column: list[arb], y: arb) -> list[arb]:
    """Return what the first of equal elements passes; NaN where balls leave it open."""
    shares = _shared(g, column, y)
    place = next((k for k, ball in enumerate(column) if not ball < y), 0)
    known = all(share.is_finite() for share in shares)
    return [g if k == place else ZERO for k in range(len(column))] if known else shares


def _factors(x: Any, c: Any) -> int:
    """Return how many factors a power is, where it is a short product of a number of known sign; else 0."""
    is_plain = x.is_finite() and (x > 0 or x < 0) and c.is_exact() and c.is_integer() and 0 < c < 9
    return int(c.unique_fmpz()) if is_plain else 0


def _power(x: arb, c: arb) -> Any:
    return math.prod([x] * count) if (count := _factors(x, c)) else _by_series("pow")(x, c)


def _power_slope(g: arb, x: arb, c: arb, y: arb) -> Any:
    """Return what a power passes to its base."""
    if count := _factors(x, c):
        return math.prod([x] * (count - 1), start=g * count)
    return _passed_by_series("pow", 0)(g, x, c, y)


@cache
def _by_series(op: str) -> Callable[..., Any]:
    def value(*args: Any) -> Any:
        found = ROWS[op](*map(_series, args))
        return found[0] if isinstance(found, arb_series) else found

    return value


def _series(arg: Any, slope: int = 0) -> Any:
    return arb_series([arg, slope]) if isinstance(arg, arb) else arg


@cache
def passing(op: str, k: int) -> Callable[..., Any] | None:
    """Return what an operation passes to an argument, of its gradient, its arguments and its value."""
    if op in PASSED and k < len(PASSED[op]):
        return PASSED[op][k]
    return None if op in PASSED else _passed_by_series(op, k)


@cache
def _passed_by_series(op: str, k: int) -> Callable[..., Any]:
    def passed(g: arb, *args: Any) -> arb:
        if g.is_zero():
            return ZERO
        slope = ROWS[op](*(_series(arg, k == place) for place, arg in enumerate(args[:-1])))[1]
        return ZERO if slope.is_zero() else g * slope

    return passed


FOLDED: dict[str, Callable[[list[arb]], Column]] = {
    **{name: partial(scanned, name) for name in WRITTEN},
    "argmax": first_place,
    "argmin": lambda column: first_place([-ball for ball in column]),
    "sum": lambda column: sum(column, ZERO),
    "amax": lambda column: reduce(arb.max, column),
    "amin": lambda column: reduce(arb.min, column),
    "max": lambda column: reduce(arb.max, column),
    "min": lambda column: reduce(arb.min, column),
}
VALUES: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "exp": arb.exp,
    "pow": _power,
    "detach": operator.pos,
    "where": lambda c, a, b: NAN if c is None else a if c else b,
}
PASSED: dict[str, Sequence[Callable[..., Any] | None]] = {
    **{name: (partial(scan_slope, name),) for name in WRITTEN},
    "argmax": (),
    "argmin": (),
    "sum": (lambda g, column, y: g,),
    "amax": (_shared,),
    "amin": (lambda g, column, y: _shared(g, [-ball for ball in column], -y),),
    "max": (_of_first,),
    "min": (lambda g, column, y: _of_first(g, [-ball for ball in column], -y),),
    "add": (lambda g, a, b, y: g, lambda g, a, b, y: g),
    "sub": (lambda g, a, b, y: g, lambda g, a, b, y: -g),
    "mul": (lambda g, a, b, y: g * b, lambda g, a, b, y: g * a),
    "div": (lambda g, a, b, y: g / b, lambda g, a, b, y: -g * y / b),
    "neg": (lambda g, a, y: -g,),
    "exp": (lambda g, a, y: g * y,),
    "square": (lambda g, a, y: 2 * g * a,),
    "pow": (_power_slope, lambda *args: _passed_by_series("pow", 1)(*args)),
    "detach": (),
    "where": (None, lambda g, c, a, b, y: g if c else ZERO, lambda g, c, a, b, y: ZERO if c else g),
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), ()),
}


def _joined(columns: list[Column]) -> list[arb]:
    return [ball for column in columns for ball in (column if isinstance(column, list) else [column])]


def _added(columns: list[list[arb]], count: int) -> list[arb]:
    """Return the sums of columns, and in these of neighbours, so that so many are left."""
    whole = [sum(balls, ZERO) for balls in zip(*columns, strict=True)]
    share = len(whole) // count
    return [sum(whole[k : k + share], ZERO) for k in range(0, len(whole), share)]
