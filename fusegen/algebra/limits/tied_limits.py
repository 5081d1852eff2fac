"""The limits of a term at the infinities of an input, tried with many values of the names tied to it."""

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fusegen.algebra.limits import clamps
from fusegen.algebra.limits.evaluation import Evaluation
from fusegen.core.term import ORDINARY, Let, Program, Term, size

INFINITY = math.inf
TINY, HUGE = map(float, ORDINARY)
OTHERS = (1.0, -1.0, 0.0, TINY, -TINY, HUGE, -HUGE)  # trial values of the other names
INCOMING = (1.0, -1.0, 2.0**20)  # and of an incoming gradient
SIZES = (2.0**-126, 1e-3, 0.1, 0.4, 0.7, 1.5, 3.0, 6.5, 12.0, 25.0, 90.0, 1e3, 2.0**60, 2.0**126)
FURTHER_OTHERS = (*SIZES, *(-size for size in SIZES))  # to find what a guard changes
SEED, DRAWN = 20261, 32  # of points at which all other names differ
FURTHER = tuple(2.0**k for k in (260, 280, 300, 320, 330))  # infinite beside those
COMBINATIONS = 150  # are all tried, if there are no more
NEARER, APART = 2.0**10, 2.0**-8  # times the other names: not so far that a sum loses them; from a limit
WAY = tuple(2.0**k for k in (100, 120, 140, 200, 300))  # infinite beside them
MOST_OPERATIONS = 2**23  # of the trials of a program: a quarter of a minute
Point = Mapping[str, float]


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
    """A point with further values of other names, at an infinity of the input."""

    point: Point  # the values of the other names
    sign: float  # of the infinity
    largest: float  # the magnitude from which on a value is infinite
    own: float  # the value of the term without a guard
    expected: float  # that value, or the limit where it is NaN; NaN if none is known


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
        return (base, *({**base, **varied} for varied in _varied(self.others)))

    def value(self, guarded: Guarded, point: Point, at: float, largest: float = INFINITY) -> float:
        """Return the value of a guarded term."""
        self.work.left -= self._operations
        lets = (*self.program.lets, *guarded.lets, Let("", guarded.term))
        return Evaluation({**point, self.name: at}, largest).last(lets)

    def evaluation(self, point: Point, at: float) -> Evaluation:
        """Return the values of the program's lets."""
        self.work.left -= self._operations
        return Evaluation({**point, self.name: at}).define(self.program.lets)

    @cached_property
    def _operations(self) -> int:
        """The size of the term with the program's lets."""
        return sum(map(size, (self.term, *(let.term for let in self.program.lets))))

    def limit(self, point: Point, sign: float, way: Sequence[float] = WAY) -> float | None:
        """The term's limit at an infinity; None if there is none, NaN if the term is NaN all the way.

        Sums that cancel on the way say nothing, as (x - m) + m does of a large m, unless a smaller number,
        at which nothing is lost, gives the same.
        """
        evaluations = [self.evaluation(point, sign * size) for size in way]
        values = [evaluation(self.term) for evaluation in evaluations]
        converges = all(clamps.agree(value, values[-1]) for value in values)
        found = values[-1] if converges else clamps.tends(values)
        if found is not None and any(evaluation.cancelled for evaluation in evaluations):
            size = NEARER * max(1.0, *(abs(value) for value in point.values() if abs(value) < INFINITY))
            nearer = self.value(Guarded(self.term), point, sign * size)
            return found if math.isclose(nearer, found, rel_tol=APART, abs_tol=APART) else None
        return found

    @cached_property
    def ends(self) -> dict[tuple[int, float], float]:
        """The values of the term at the infinities, by point and sign."""
        return {
            (n, sign): self.value(Guarded(self.term), point, sign * INFINITY)
            for n, point in enumerate(self.points)
            for sign in clamps.SIDES
        }

    @cached_property
    def expected(self) -> dict[tuple[int, float], float]:
        """The values that a guarded term must have there; NaN stays where there is no limit.

        Nothing is expected where the term is NaN all the way, or where two infinities meet.
        """
        found = {}
        for (n, sign), end in self.ends.items():
            point = self.points[n]
            limit = self.limit(point, sign) if math.isnan(end) else end
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
        return any(math.isinf(value) for sign in self.sides for value in self.values(sign))

    def values(self, sign: float) -> list[float]:
        """Return the expected values at an infinity."""
        return [value for (_, at), value in self.expected.items() if at == sign]

    @cached_property
    def far(self) -> tuple[Far, ...]:
        """Points with further values of other names, and what a guarded term must be there."""
        base, chance = self.points[0], random.Random(SEED)
        points = [{**base, name: value} for name in self.others for value in FURTHER_OTHERS]
        if len(self.others) > 1:
            points += [
                {**base, **{name: chance.choice(FURTHER_OTHERS) for name in self.others}}
                for _ in range(DRAWN)
            ]
        found = []
        for point, largest, sign in itertools.product(points, clamps.RANGES, clamps.SIDES):
            own = self.value(Guarded(self.term), point, sign * INFINITY, largest)
            limit = self.limit(point, sign, FURTHER) if math.isnan(own) else own
            found.append(Far(point, sign, largest, own, math.nan if limit is None else limit))
        return tuple(found)

    def safe(self, guarded: Guarded) -> bool:
        """True if a guarded term is right, or NaN as the term is, beside further values of other names."""
        for each in self.far:
            if self.work.is_done:
                return False
            found = self.value(guarded, each.point, each.sign * INFINITY, each.largest)
            undecided = math.isnan(found) and math.isnan(each.own)
            if not (undecided or near(found, each.expected)):
                return False
        return True

    def met(self, guarded: Guarded) -> bool:
        """Return True if a guarded term has the expected values in the ranges of float and of double."""
        return not self.work.is_done and all(
            near(self.value(guarded, self.points[n], sign * INFINITY, largest), value)
            for (n, sign), value in self.expected.items()
            for largest in clamps.RANGES
        )


def _varied(values: Mapping[str, Sequence[float]]) -> Iterator[Point]:
    """Points of some names: all combinations of values; of many names, one varies, or all do together."""
    if math.prod(map(len, values.values())) <= COMBINATIONS:
        for each in itertools.product(*values.values()):
            yield dict(zip(values, each, strict=True))
    else:
        yield from ({name: value} for name, several in values.items() for value in several)
        for k in range(len(OTHERS)):
            yield {name: several[k % len(several)] for name, several in values.items()}
    yield from ({name: value} for name in values for value in (-INFINITY, INFINITY))


def near(a: float, b: float) -> bool:
    """Return True if two limits are the same, computed in different ways."""
    return clamps.agree(a, b) or math.isclose(a, b, rel_tol=1e-6, abs_tol=2.0**-100)
