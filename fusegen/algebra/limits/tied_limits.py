"""The limits of a term at the infinities of an input, tried with many values of the names tied to it."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fusegen.algebra.limits import clamps, trial_values
from fusegen.algebra.limits.evaluation import Columns
from fusegen.algebra.limits.trial_values import Point
from fusegen.core.term import Let, Program, Term, size

INFINITY = math.inf
FURTHER = tuple(2.0**k for k in (260, 280, 300, 320, 330))  # infinite beside those
NEARER, APART = 2.0**10, 2.0**-8  # times the other names: not so far that a sum loses them; from a limit
WAY = tuple(2.0**k for k in (100, 120, 140, 200, 300))  # infinite beside them
MOST_OPERATIONS = 2**23  # of the trials of a program: a quarter of a minute
Case = tuple[Point, float]  # with the sign of an infinity of the input
Place = tuple[Point, float, float]  # with the value of the input, and what is infinite


@dataclass
class Work:
    """The operations that trials of a program may still take: with many inputs the last have no guard."""

    # evaluated operations. Not seconds, so that every machine finds the same guards
    left: int = MOST_OPERATIONS

    @property
    def is_done(self) -> bool:
        """True if nothing is left."""
        return self.left <= 0


@dataclass(frozen=True)
class Guarded:
    """A term, and the lets that it needs besides the program's."""

    term: Term
    lets: tuple[Let, ...] = ()


@dataclass(frozen=True)
class Far:
    """Points with further values of other names, at the infinities of the input."""

    at: Columns
    own: Sequence[float]  # the values of the term without a guard
    expected: Sequence[float]  # those values, or the limit of one that is NaN; NaN if none is known


@dataclass(frozen=True)
class TiedLimits:
    """A term of a program, which an input decides together with other names."""

    program: Program  # with the lets that the term reads
    term: Term  # a part of one of its results
    name: str  # of the input
    # the other inputs and parameters that decide the term, with trial values
    others: Mapping[str, Sequence[float]]
    params: Mapping[str, float]  # the default values of all parameters
    work: Work  # what the trials take from

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Trial values of all names but the input, the defaults first."""
        base = {**dict.fromkeys(self.program.inputs, 1.0), **self.params}
        return (base, *({**base, **varied} for varied in trial_values.varied(self.others)))

    def values(self, guarded: Guarded, at: Columns) -> list[float]:
        """Return the values of a guarded term at some points."""
        lets = (*self.program.lets, *guarded.lets, Let("", guarded.term))
        found, _ = at.last(lets, len(lets) - 1)
        return [*map(float, found)]

    def columns(self, places: Sequence[Place]) -> Columns:
        """Return some points as columns."""
        names = (*self.program.inputs, *self.program.params)
        known = {name: np.array([point[name] for point, *_ in places], float) for name in names}
        return Columns(
            known | {self.name: np.array([at for _, at, _ in places], float)},
            np.array([largest for *_, largest in places], float),
        )

    def spend(self, trials: int) -> None:
        """Take so many trials of the term from the work."""
        self.work.left -= trials * self._operations

    @cached_property
    def _operations(self) -> int:
        """The size of the term with the program's lets."""
        return sum(map(size, (self.term, *(let.term for let in self.program.lets))))

    def limits(
        self, cases: Sequence[tuple[Point, float]], way: Sequence[float] = WAY
    ) -> list[float | None]:
        """The term's limits at infinities; None if there is none, NaN if the term is NaN all the way.

        Sums that cancel on the way say nothing, as (x - m) + m does of a large m, unless a smaller number,
        at which nothing is lost, gives the same.
        """
        if not cases:
            return []
        at = self.columns([(point, sign * size, INFINITY) for point, sign in cases for size in way])
        self.spend(len(at.largest))
        found, cancelled = at.last((*self.program.lets, Let("", self.term)), 0)
        rows, lost = found.reshape(-1, len(way)).tolist(), cancelled.reshape(-1, len(way)).tolist()
        return [
            self._checked(case, limit) if limit is not None and any(cancels) else limit
            for case, limit, cancels in zip(cases, map(_limit, rows), lost, strict=True)
        ]

    def _checked(self, case: Case, limit: float) -> float | None:
        """The limit, if a smaller number gives it; else None."""
        point, sign = case
        size = NEARER * max(1.0, *(abs(value) for value in point.values() if abs(value) < INFINITY))
        self.spend(1)
        [nearer] = self.values(Guarded(self.term), self.columns([(point, sign * size, INFINITY)]))
        return limit if math.isclose(nearer, limit, rel_tol=APART, abs_tol=APART) else None

    @cached_property
    def ends(self) -> dict[tuple[int, float], float]:
        """The values of the term at the infinities, by point and sign."""
        keys = [*itertools.product(range(len(self.points)), clamps.SIDES)]
        self.spend(len(keys))
        at = self.columns([(self.points[n], sign * INFINITY, INFINITY) for n, sign in keys])
        return dict(zip(keys, self.values(Guarded(self.term), at), strict=True))

    @cached_property
    def expected(self) -> dict[tuple[int, float], float]:
        """The values that a guarded term must have there; NaN stays where there is no limit.

        Nothing is expected where the term is NaN all the way, or where two infinities meet.
        """
        found = {}
        undefined = [key for key, end in self.ends.items() if math.isnan(end)]
        limits = dict(
            zip(undefined, self.limits([(self.points[n], sign) for n, sign in undefined]), strict=True)
        )
        for (n, sign), end in self.ends.items():
            point, limit = self.points[n], limits.get((n, sign), end)
            if limit is None:
                found[n, sign] = math.nan
            elif not math.isnan(limit) and (limit == end or all(map(math.isfinite, point.values()))):
                found[n, sign] = limit
        return found

    @property
    def lost(self) -> list[tuple[int, float]]:
        """The points and signs of infinities that give NaN instead of a limit."""
        return [
            key for key, value in self.expected.items() if math.isnan(self.ends[key]) and value == value
        ]

    @property
    def sides(self) -> list[float]:
        """The signs to guard; none if infinity is lost only beside a 0 or with other parameters."""
        if self.work.is_done:
            return []
        lost = [self.points[n] for n, _ in self.lost]
        named = {name: default for name, default in self.params.items() if name in self.others}
        if any(named.items() <= point.items() and 0 not in map(point.get, self.others) for point in lost):
            return sorted({sign for _, sign in self.lost})
        return []

    @property
    def grows(self) -> bool:
        """True if a limit to guard is infinite."""
        return any(math.isinf(value) for sign in self.sides for value in self.expected_at(sign))

    def expected_at(self, sign: float) -> list[float]:
        """Return the expected values at an infinity."""
        return [value for (_, at), value in self.expected.items() if at == sign]

    @cached_property
    def far(self) -> Far:
        """Points with further values of other names, and what a guarded term must be there."""
        points = [{**self.points[0], **moved} for moved in trial_values.further(self.others)]
        tried = [*itertools.product(points, clamps.RANGES, clamps.SIDES)]
        at = self.columns([(point, sign * INFINITY, largest) for point, largest, sign in tried])
        self.spend(len(tried))
        own = self.values(Guarded(self.term), at)
        undefined = [k for k, value in enumerate(own) if math.isnan(value)]
        limits = self.limits([(tried[k][0], tried[k][2]) for k in undefined], FURTHER)
        expected = dict(enumerate(own)) | {
            k: math.nan if limit is None else limit for k, limit in zip(undefined, limits, strict=True)
        }
        return Far(at, own, [*expected.values()])

    def safe(self, guarded: Guarded) -> bool:
        """True if a guarded term is right, or NaN as the term is, beside further values of other names."""
        found = self.values(guarded, self.far.at)
        for value, own, expected in zip(found, self.far.own, self.far.expected, strict=True):
            if self.work.is_done:
                return False
            self.spend(1)
            undecided = math.isnan(value) and math.isnan(own)
            if not (undecided or near(value, expected)):
                return False
        return True

    @cached_property
    def _ranges(self) -> Columns:
        """The infinities at which something is expected, in the ranges of float and of double."""
        return self.columns(
            [
                (self.points[n], sign * INFINITY, largest)
                for n, sign in self.expected
                for largest in clamps.RANGES
            ]
        )

    def met(self, guarded: Guarded) -> bool:
        """Return True if a guarded term has the expected values in the ranges of float and of double."""
        if self.work.is_done:
            return False
        expected = (value for value in self.expected.values() for _ in clamps.RANGES)
        for found, value in zip(self.values(guarded, self._ranges), expected, strict=True):
            self.spend(1)
            if not near(found, value):
                return False
        return True


def _limit(values: Sequence[float]) -> float | None:
    """The limit of some values on the way to an infinity."""
    converges = all(clamps.agree(value, values[-1]) for value in values)
    return values[-1] if converges else clamps.tends(values)


def near(a: float, b: float) -> bool:
    """Return True if two limits are the same, computed in different ways."""
    return clamps.agree(a, b) or math.isclose(a, b, rel_tol=1e-6, abs_tol=2.0**-100)
