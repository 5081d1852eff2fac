"""Enclosures: what a formula and its derivatives are over the real numbers, to a hundred bits and proven.

A program is evaluated in balls, midpoint and radius, that hold the real number whatever was rounded; a
result whose ball is too wide is computed again with twice the bits, up to 4096. Balls come in power series
x + t, cut after t, so that a value brings its derivative along. PyTorch's conventions hold at the kinks:
relu'(0) = 0, relu6'(0) = relu6'(6) = 0, clamp'(bound) = 1, saturate'(bound) = 0, abs'(0) = 0, and half to
each of maximum's equal arguments. This shares nothing with `gradients` and `derive`, which it judges.

A comparison that its balls leave open makes the result undefined, which asks for more bits. Numbers that
4096 bits do not tell apart are equal, in comparisons and nowhere else.

This is the door to flint, whose context (precision and length of series) is this module's.

Source: Johansson 2017, Arb: Efficient Arbitrary-Precision Midpoint-Radius Interval Arithmetic, IEEE
Transactions on Computers 66; Griewank and Walther 2008, Evaluating Derivatives, chapter 13; PyTorch,
tools/autograd/derivatives.yaml.
"""

import math
import multiprocessing
import os
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from fractions import Fraction
from functools import cache, partial
from itertools import repeat, starmap
from typing import Any

from flint import arb, arb_series, ctx

from fusegen.core.term import Program, applied
from fusegen.evidence.certify.enclosures.ball_functions import ROWS, number
from fusegen.evidence.certify.enclosures.doubles import (
    BETWEEN,
    FAR,
    Real,
    as_real,
    is_near,
    said_of_a_wide_ball,
    tendency,
)
from fusegen.evidence.certify.enclosures.power_series import PRECISIONS, Row
from fusegen.evidence.certify.enclosures.steps import Steps

CHUNK = 4096
WAVES = frozenset(("sin", "cos"))
Column = tuple["array[float]", "array[float]"]
_Row = tuple[
    int, Row, tuple[int, ...]
]  # an operation on the values in some slots, and the slot of its result


class Enclosure:
    """A program of one result, made once and then called at many points.

    Two doubles that say all there is to say of a value may take 4096 bits to find, never more than a few
    milliseconds an operation, also at 1e308.
    """

    def __init__(self, program: Program, params: Mapping[str, Fraction]) -> None:
        """Prepare a program, which calls no other spec, with a number for each of its parameters."""
        self._inputs = len(program.inputs)
        self._waves = not WAVES.isdisjoint(applied(program.terms))
        self._fixed: list[_Row] = []  # what no input reaches
        self._moving: list[_Row] = []
        self._starts: dict[int, list[Any]] = {}
        of = Steps(program, params)
        [self._result] = of.results
        constant = [False] * self._inputs
        for slot, (op, args) in enumerate(of.steps, self._inputs):
            constant.append(all(constant[arg] for arg in args))
            row = partial(number, op) if isinstance(op, Fraction) else ROWS[op]
            (self._fixed if constant[slot] else self._moving).append((slot, row, args))

    def __call__(self, *inputs: float) -> tuple[Real, ...]:
        """The value at a point, then the derivative by each input; NaN where an input is not finite."""
        if not all(map(math.isfinite, inputs)):
            return (Real(math.nan, 0.0),) * (1 + self._inputs)
        ctx.cap = 2
        for precision in PRECISIONS:
            if ctx.prec != precision:
                ctx.prec = precision
            balls = self._results(inputs, precision)
            reals = tuple(found for ball in balls if (found := as_real(ball)) is not None)
            if len(reals) == len(balls):
                return reals
        return tuple(as_real(ball) or said_of_a_wide_ball(ball) for ball in balls)

    def limit(self, *inputs: float) -> tuple[Real, ...]:
        """Return the limits of value and derivative at an infinity; at a number, their values.

        They are looked at along 2**64, 2**256, 2**1000, along one and a half times these, and of sines,
        whose turns may be whole there, between whole numbers. Each time the last two must agree to 60 bits
        (that is the limit), or each must be at most half of the one before (it is 0), or at least twice as
        large (it is infinite); else it is NaN. This is evidence, no proof.

        Raises:
            ValueError: the program has more than one input.
        """
        if self._inputs != 1:
            raise ValueError("a limit is that of a function of one input")
        if not math.isinf(inputs[0]):
            return self(*inputs)
        ways = [FAR, [1.5 * far for far in FAR], *([BETWEEN] if self._waves else [])]
        runs = [zip(*(self(math.copysign(size, inputs[0])) for size in way), strict=True) for way in ways]
        return tuple(
            first if all(is_near(first.hi, other.hi) for other in others) else Real(math.nan, 0.0)
            for first, *others in zip(*([tendency(*three) for three in run] for run in runs), strict=True)
        )

    def _results(self, inputs: Sequence[float], precision: int) -> list[arb]:
        if precision not in self._starts:
            self._starts[precision] = self._start()
        found: list[arb] = []
        for moving in range(self._inputs):
            slots = self._starts[precision].copy()
            for slot, x in enumerate(inputs):
                slots[slot] = arb_series([x, 1] if slot == moving else [x])
            for slot, row, args in self._moving:
                slots[slot] = row(*[slots[arg] for arg in args])
            series = slots[self._result]
            found += [series[1]] if found else [series[0], series[1]]
        return found

    def _start(self) -> list[Any]:
        """Return the slots, those filled that no input reaches."""
        slots: list[Any] = [None] * (self._inputs + len(self._fixed) + len(self._moving))
        for slot, row, args in self._fixed:
            slots[slot] = row(*[slots[arg] for arg in args])
        return slots


def values(
    program: Program,  # of one result
    params: Mapping[str, Fraction],  # a number for each of its parameters
    points: Sequence[tuple[float, ...]],  # a double for each of its inputs
    jobs: int = 1,  # how many processes compute, if there is enough to do
    # called with the number of points done since the last call
    progress: Callable[[int], None] = lambda done: None,
) -> list[Column]:
    """Value and derivatives at many points.

    Returns:
        For the value, then for the derivative by each input: the arrays of `hi` and of `lo`.
    """
    columns = [(array("d"), array("d")) for _ in range(1 + len(program.inputs))]
    chunks = [points[start : start + CHUNK] for start in range(0, len(points), CHUNK)]
    for chunk, found in zip(chunks, _mapped(program, params, chunks, min(jobs, len(chunks))), strict=True):
        for (hi, lo), (more_hi, more_lo) in zip(columns, found, strict=True):
            hi += more_hi
            lo += more_lo
        progress(len(chunk))
    return columns


def _mapped(
    program: Program, params: Mapping[str, Fraction], chunks: list[Sequence[tuple[float, ...]]], jobs: int
) -> Iterable[list[Column]]:
    if jobs <= 1:
        return map(_columns, repeat(program), repeat(params), chunks)
    return _computed(program, dict(params), chunks)


def _computed(
    program: Program, params: dict[str, Fraction], chunks: list[Sequence[tuple[float, ...]]]
) -> Iterator[list[Column]]:
    """The columns of each chunk, by processes; a pool of which one was killed is left, not used again."""
    try:
        yield from _processes(os.cpu_count() or 1).map(_columns, repeat(program), repeat(params), chunks)
    except BrokenProcessPool:
        _processes.cache_clear()
        raise


@cache
def _processes(count: int) -> ProcessPoolExecutor:
    """Return processes that stay; they are forked from a fresh one, since this one may have threads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in sys.modules if name.startswith("fusegen.")])
    return ProcessPoolExecutor(count, context)


def _columns(
    program: Program, params: Mapping[str, Fraction], points: Sequence[tuple[float, ...]]
) -> list[Column]:
    rows = starmap(Enclosure(program, params), points)
    return [
        (array("d", [real.hi for real in reals]), array("d", [real.lo for real in reals]))
        for reals in zip(*rows, strict=True)
    ]
