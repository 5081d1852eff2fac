"""The values of terms in IEEE double at a point, infinite from some magnitude on.

Guards are tried at tens of thousands of points. So a term is taken apart once, into steps in which each
part is there once, and these are applied to columns of numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fusegen.core.term import Apply, Let, Name, Number, Term
from fusegen.numerics.ieee import Column, column, nearest_double, value

Cancelled = npt.NDArray[np.bool_]

ABSORBING = 2.0**64  # a number whose sums lose what the function of a limit may be
LOST = 2.0**-24  # of the larger addend: what is left of a difference that says nothing
CLAMPS: dict[str, Callable[[Any, Any], Any]] = {  # to a quarter of what overflows
    "clamp_to_lowest": lambda x, bound: np.maximum(x, -bound), "clamp_to_highest": np.minimum,
}  # fmt: skip

WAVES = {"sinpi": "sin", "cospi": "cos"}  # of turns, which are whole at every large number, in turn


@dataclass(frozen=True)
class Step:
    """An operation of values before it."""

    place: int  # of the value, among those of all operations
    op: str
    args: tuple[int, ...]  # the places of its arguments


@dataclass
class Evaluation:
    """The values of terms in IEEE double, infinite from some magnitude on."""

    known: dict[str, float]  # the values of names
    largest: float = math.inf  # the magnitude from which on a value is infinite
    overflowed: bool = False  # whether one was

    def __call__(self, term: Term) -> float:
        """Return the value of a term."""
        return self._values(_taken_apart((Let("", term),), 0))[0]

    def define(self, lets: Iterable[Let]) -> Evaluation:
        """Return the same, with the values of some lets."""
        lets = tuple(lets)
        found = self._values(_taken_apart(lets, 0))
        self.known.update(zip((let.name for let in lets), found, strict=True))
        return self

    def last(self, lets: Iterable[Let]) -> float:
        """Return the value of the last let; of those before it, the ones that it reads are computed."""
        lets = tuple(lets)
        return self._values(_taken_apart(lets, len(lets) - 1))[0]

    def _values(self, taken: TakenApart) -> list[float]:
        """The values of some lets."""
        found = [math.nan] * taken.size
        found += [self.known[leaf] if isinstance(leaf, str) else leaf for leaf in reversed(taken.leaves)]
        for step in taken.steps:
            values = [found[k] for k in step.args]
            found[step.place] = self._limited(step, value(step.op, values))
        return [found[k] for k in taken.results]

    def _limited(self, step: Step, found: float) -> float:
        """The value of a step, infinite where it is large; marks what overflows."""
        size = abs(found)
        if step.op in CLAMPS and size < math.inf:
            return float(CLAMPS[step.op](found, self.largest / 4))
        if size >= self.largest:
            self.overflowed = True
            return math.copysign(math.inf, found)
        return found


@dataclass(frozen=True)
class Columns:
    """The same at many points at once, to the same bits."""

    known: Mapping[str, Column]  # the values of names
    largest: Column  # the magnitudes from which on a value is infinite

    def last(self, lets: Sequence[Let], first: int) -> tuple[Column, Cancelled]:
        """Return the values of the last let, and where a sum lost its digits.

        Args:
            lets: to be evaluated.
            first: the number of the first of them that is computed even where the last does not read it.
        """
        taken = _taken_apart(tuple(lets), first)
        found = [self.largest] * taken.size + [
            self.known[leaf] if isinstance(leaf, str) else np.full_like(self.largest, leaf)
            for leaf in reversed(taken.leaves)
        ]
        cancelled = np.zeros(len(self.largest), bool)
        for step in taken.steps:
            values = [found[k] for k in step.args]
            found[step.place] = self._limited(step, values, cancelled)
        return found[taken.results[-1]], cancelled

    def _limited(self, step: Step, values: Sequence[Column], cancelled: Cancelled) -> Column:
        """The values of a step, infinite where they are large."""
        found = column(step.op, values)
        size = np.abs(found)
        with np.errstate(over="ignore", invalid="ignore"):
            if step.op in ("add", "sub"):
                most = np.maximum(*map(np.abs, values))
                cancelled |= (most > ABSORBING) & (most < math.inf) & (size < LOST * most)
            infinite = np.where(size >= self.largest, np.copysign(math.inf, found), found)
            if step.op in CLAMPS:
                return np.where(size < math.inf, CLAMPS[step.op](found, self.largest / 4), infinite)
        return infinite


@functools.lru_cache(maxsize=512)  # a guard is tried at one point after the other
def _taken_apart(lets: tuple[Let, ...], first: int) -> TakenApart:
    """The operations that some lets from the first on need, each once."""
    return TakenApart(lets, first)


class TakenApart:
    """Some lets as operations of numbers; one that has the name of an earlier let takes its place."""

    def __init__(self, lets: Sequence[Let], first: int) -> None:
        """Take them apart."""
        self.leaves: list[str | float] = []  # names and numbers, whose places come from the end
        self.places: dict[object, int] = {}  # of a leaf, or of an operation with those of its arguments
        self.bound: dict[str, int] = {}  # the places of lets
        self.terms: dict[Term, int] = {}  # and of terms that read them
        steps: list[Step] = []
        self.results = [self._let(let, steps) for let in lets][first:]
        self.size = len(steps)
        needed = {*self.results}
        for step in reversed(steps):
            needed.update(step.args if step.place in needed else ())
        self.steps = [step for step in steps if step.place in needed]

    def _let(self, let: Let, steps: list[Step]) -> int:
        found = self._place(let.term, steps)
        if let.name in self.bound or let.name in self.places:
            self.terms.clear()  # which read what had the name before
        self.bound[let.name] = found
        return found

    def _place(self, term: Term, steps: list[Step]) -> int:
        if term not in self.terms:
            match term:
                case Number(number):
                    found = self._leaf(nearest_double(number))  # INFINITY is none, and overflows
                case Name(name):
                    found = self.bound[name] if name in self.bound else self._leaf(name)
                case Apply(op, args):
                    found = self._step(
                        WAVES.get(op, op), tuple(self._place(arg, steps) for arg in args), steps
                    )
                case _:
                    raise AssertionError("compose has replaced every call of a spec")
            self.terms[term] = found
        return self.terms[term]

    def _leaf(self, leaf: str | float) -> int:
        if leaf not in self.places:
            self.leaves.append(leaf)
            self.places[leaf] = -len(self.leaves)
        return self.places[leaf]

    def _step(self, op: str, args: tuple[int, ...], steps: list[Step]) -> int:
        if (op, args) not in self.places:
            self.places[op, args] = place = len(steps)
            steps.append(Step(place, op, args))
        return self.places[op, args]
