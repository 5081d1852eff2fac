"""A kernel beside eager's operations at special inputs, and at incoming gradients that are powers of two.

Both are evaluated in IEEE arithmetic, a number for each operation, and judged as `certify` judges results:

zero     a result that is a zero at a zero input is eager's
nan      NaN where eager has NaN of a NaN, and nowhere else but in NaN
limit    at an infinity the limit, where there is one
linear   times a power of two, a gradient is exactly that of 1 times it, as long as neither leaves the range

What is special: NaN, infinities, zeros, the least and the largest number, up to three inputs at once.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fusegen.algebra.compose import expanded
from fusegen.algebra.derive import aten_gradient, attached, derive, derive_written
from fusegen.algebra.limits.clamps import tends
from fusegen.algebra.simplify import simplify
from fusegen.compiler.estimates import Formula, with_uniforms
from fusegen.core.interval import REALS, Interval, Point, Truth
from fusegen.core.ir import Kernel, Math, round_to
from fusegen.core.method import Both, Pass
from fusegen.core.targets import Device
from fusegen.core.term import Program, applied
from fusegen.lower import lower
from fusegen.numerics.ieee import Column
from fusegen.numerics.reals import Reals
from fusegen.numerics.roundoff.graph import DOUBLE, LARGEST, Graph
from fusegen.numerics.roundoff.local import GONE, Mask
from fusegen.numerics.sample import JUDGED

TINY, LEAST_SIZE = 2.0**-126, 2.0**-149
SPECIALS = (math.nan, math.inf, -math.inf, 0.0, -0.0)
ALL = (*SPECIALS, 1.0, -2.5, TINY, LARGEST)
TOGETHER, REST = 3, 1.0  # inputs that are special at once, and what the others are
WAY = tuple(2.0**k for k in (3, 4, 5, 6, 7, 28, 36, 44, 60, 80, 100, 120))  # to an infinity
NEAR = 5  # of these, in which an infinite limit is approached
CONVERGED, LIMIT = 2.0**-50, 2.0**-21  # how near values on the way are, and a result is to their limit
SEED, DRAWN, EACH = 20261, 4096, 4  # points of several inputs; of one input by exponent and sign
# functions that bound their argument themselves, of x times what falls
LIMITED = frozenset(
    "times_ndtr times_ndtr_slope x_sigmoid times_sigmoid x_sigmoid_slope times_tanh_softplus "
    "times_tanh_softplus_slope".split()
)
FAR = 2.0**126
JUDGED_LEAST, JUDGED_MOST, LOST = 2.0**-141, LARGEST / 16, 2.0**-17  # of results that are not lost
OTHER_SCALARS = (0.0, -0.75, 2.0**-30, 2.0**30)
KINDS = ("zero", "nan", "limit", "linear")
EXPONENTS = (6, 14)  # of powers of two that the incoming gradient is
LIMITS = (0.0, math.inf)  # what else it is
ROOM = 2.0**7  # above the least number: gradients that are judged
Points = Mapping[str, Column]


@dataclass(frozen=True)
class Fault:
    """A result that is not as it should be.

    Attributes:
        kind: of the table above.
        output: 0 of the value, else the place of the input whose gradient it is, from 1 on.
        at: the inputs.
        own: the result.
        wanted: what it should be.
        incoming: the incoming gradient.
        count: at how many of the tried points it is so.
    """

    kind: str
    output: int
    at: Mapping[str, float]
    own: float
    wanted: float
    incoming: float = 1.0
    count: int = 1


class _Stored:
    """Double-word values as floats hold them: in their range, low words on the grid of the least of them."""

    def __call__(self, numbers: Column) -> Column:
        sizes = np.abs(numbers)
        found = np.where(sizes > LARGEST, np.copysign(np.inf, numbers), numbers)
        small = (sizes < GONE) & (sizes > 0)
        return np.where(small, np.rint(found / LEAST_SIZE) * LEAST_SIZE, found) if small.any() else found


def _in_float(numbers: Column) -> Column:
    with np.errstate(all="ignore"):
        return numbers.astype(np.float32).astype(np.float64)


class _Kernel(Graph):
    """A kernel whose functions have their limits at infinity."""

    def computed(self, op: str, args: Sequence[Column]) -> Column:
        """Return the values of an operation, where they are NaN those for large numbers."""
        found = super().computed(op, args)
        if op not in LIMITED or not np.isnan(found).any():
            return found
        large = super().computed(op, [np.clip(arg, -FAR, FAR) for arg in args])
        return np.where(np.isnan(found), large, found)


@dataclass(frozen=True)
class Trial:
    """The points at which kernels of a formula are tried, and eager's results there.

    Attributes:
        formula: as declared.
        programs: which the kernels compute, with steps that only scalars decide.
        tolerance: by which a scaled gradient may differ.
    """

    formula: Formula
    programs: Both[Program]
    tolerance: float = 0.0

    @cached_property
    def scales(self) -> list[Column]:
        """Incoming gradients for the points of the sample: powers of two of either sign, 0 and infinity."""
        draw, count = random.Random(SEED), len(self.sample[self.names[0]])
        found = [[draw.choice((-1, 1)) * 2.0 ** draw.randint(-k, k) for _ in range(count)] for k in EXPONENTS]
        return [np.array(each) for each in (*found, *([x] * count for x in LIMITS))]

    @cached_property
    def params(self) -> Mapping[str, float]:
        """The values of scalars and of what only they decide."""
        return with_uniforms(self.formula.params, *self.programs)

    @cached_property
    def at_scalars(self) -> list[Trial]:
        """The same with other scalars: one at a time, and all of them negative."""
        own = self.formula.params
        found = [{**own, name: value} for name in own for value in OTHER_SCALARS if value != own[name]]
        if own:
            found.append({name: -abs(value) for name, value in own.items()})
        return [replace(self, formula=replace(self.formula, params=params)) for params in found]

    def faults(self, kernels: Both[Kernel], which: Pass) -> list[Fault]:
        """Return the faults of a pass; a gradient may read the value that the other kernel gives."""
        own = _Tried(self, kernels, self.params)
        found = [*own.nan(which), *own.zeros(which), *own.limits(which)]
        found += [fault for each in self.at_scalars for fault in each.undefined(kernels, which)]
        return found + own.linear() if which is Pass.BACKWARD else found

    def beyond(self, kernels: Both[Kernel], which: Pass) -> list[Fault]:
        """Return results of one tensor that are lost in an overflow or an underflow on the way."""
        return list(_Tried(self, kernels, self.params).beyond(which))

    def undefined(self, kernels: Both[Kernel], which: Pass) -> list[Fault]:
        """Return the first finite inputs, of each output, at which it is no number, but eager's is one."""
        points, own = self.finite, _Tried(self, kernels, self.params).by_output(which, self.finite)
        eager = self.eager.by_output(which, points)
        scalars = self.formula.params
        return [
            replace(fault, at={**fault.at, **scalars})
            for output, found in own.items()
            for fault in _first(
                "nan", output, points, found, eager[output], np.isnan(found) & np.isfinite(eager[output])
            )
        ]

    @cached_property
    def finite(self) -> Points:
        """The finite points of the grid."""
        columns = np.array([self.grid[name] for name in self.names])
        kept = np.isfinite(columns).all(axis=0)
        return {name: self.grid[name][kept] for name in self.names}

    def zeros_of_pieces(self, kernels: Both[Kernel], which: Pass) -> list[Fault]:
        """Return the faults of polynomials in pieces: a zero of theirs has the sign of what is next to it."""
        return list(_Pieces(self, kernels, self.params).zeros(which))

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs."""
        return self.formula.declared.inputs

    @cached_property
    def eager(self) -> _Tried:
        """Eager's operations in float."""
        return _Tried(self, self._eager(Math.FLOAT), self._eager_params)

    @cached_property
    def eager_in_double(self) -> _Tried:
        """Eager's operations in double."""
        return _Tried(self, self._eager(Math.DOUBLE), self._eager_params)

    def _eager(self, kind: Math) -> Both[Kernel]:
        return self._written.map(lambda program: lower("eager", program, Device.CPU, kind))

    @cached_property
    def _written(self) -> Both[Program]:
        """Eager's operations, as autograd records them."""
        eager, ranges = self.formula.eager, dict(self.formula.assume)
        backward = attached(aten_gradient(eager) or derive_written(eager))
        return Both(self.formula.eager_programs.forward, simplify(expanded(backward), ranges)[0])

    @cached_property
    def _eager_params(self) -> Mapping[str, float]:
        return with_uniforms(self.formula.params, *self._written)

    @cached_property
    def singles(self) -> tuple[Points, list[tuple[int, float]]]:
        """Points of which one input is special, and which one and what it is."""
        rows = [(k, x) for k, name in enumerate(self.names) for x in SPECIALS if self._may_be(name, x)]
        columns = {name: np.array([x if k == j else REST for j, x in rows]) for k, name in self.places}
        return columns, rows

    @cached_property
    def grid(self) -> Points:
        """Every combination of special values, with numbers, of the first inputs."""
        values = [[x for x in ALL if self._may_be(name, x)] for name in self.names[:TOGETHER]]
        values += [[REST] for _ in self.names[TOGETHER:]]
        rows = [row for row in itertools.product(*values)]
        return {name: np.array([row[k] for row in rows]) for k, name in self.places}

    @property
    def places(self) -> list[tuple[int, str]]:
        """The inputs with their places."""
        return list(enumerate(self.names))

    def _may_be(self, name: str, x: float) -> bool:
        interval = self.formula.assume.get(name, REALS)
        if isinstance(interval, Truth):
            return x == 0.0 and math.copysign(1, x) > 0
        return math.isnan(x) or interval.low <= x <= interval.high

    @cached_property
    def sample(self) -> Points:
        """Finite points of every size, in the ranges that are judged."""
        draw = random.Random(SEED)
        one = len(self.names) == 1
        signed = [s * 2.0**e for e in range(-126, 128) for s in (1.0, -1.0)]
        sizes = signed * EACH if one else [draw.choice(signed) for _ in range(DRAWN)]
        columns = {}
        for _, name in self.places:
            kept = Interval(-math.inf, math.inf) if one else Interval(-JUDGED, JUDGED)
            interval = self.formula.assume.get(name, kept)
            low, high = float(interval.low), float(interval.high)
            drawn = [size * draw.uniform(1, 2) for size in draw.sample(sizes, len(sizes))]
            half = len(drawn) // (3 if one else 2)
            drawn[:half] = [draw.gauss(0.0, 4.0) for _ in range(half)] if not one else drawn[:half]
            if one:
                drawn += [draw.gauss(0.0, 40.0) for _ in range(half)]
            found = np.clip(_in_float(np.array(drawn)), low, high)
            columns[name] = (found > 0).astype(float) if isinstance(interval, Truth) else found
        return columns

    def limit_at(self, output: int, name: str, end: float, others: Point) -> float | None:
        """Return the limit of the value or of a gradient as one input tends to an infinity."""
        value, slopes, incoming = self._reals
        rest = {**others, incoming: 1.0}
        points = ({**rest, name: math.copysign(size, end)} for size in WAY)
        found = [slopes(at)[output - 1] if output else value(at)[0] for at in points]
        return _tendency(found, self._swings)

    def limit(self, place: int, end: float) -> tuple[float | None, float | None]:
        """Return the limits of the value and of the gradient by an input, the others being ordinary."""
        others = {**self.formula.params, **dict.fromkeys(self.names, REST)}
        name = self.names[place]
        value, slope = (self.limit_at(output, name, end, others) for output in (0, 1 + place))
        return value, slope

    @cached_property
    def _swings(self) -> bool:
        """True if a sine or a cosine may make a growing function one without a limit."""
        return bool(applied(self.formula.declared.terms) & {"sin", "cos"})

    @cached_property
    def _reals(self) -> tuple[Reals, Reals, str]:
        value = expanded(self.formula.declared)
        gradient = derive(value)
        return Reals(value), Reals(gradient), gradient.inputs[0]

    @cached_property
    def ends(self) -> dict[tuple[int, float], tuple[float | None, float | None]]:
        """The limits by input and infinity."""
        return {(k, x): self.limit(k, x) for k, x in self.singles[1] if math.isinf(x)}


def _tendency(values: Sequence[float], swings: bool) -> float | None:
    """Return the limit of values, if they have one."""
    last = values[-3:]
    if all(math.isfinite(x) and math.isclose(x, last[-1], rel_tol=CONVERGED) for x in last):
        return last[-1]
    near = values[:NEAR]
    if all(math.isinf(x) and x == last[-1] for x in last) and all(map(math.isfinite, near)):
        grows = all(1.2 * abs(a) <= abs(b) and a * b > 0 for a, b in itertools.pairwise(near))
        return last[-1] if grows and near[-1] * last[-1] > 0 else None
    further = values[NEAR:]
    return None if swings or not all(map(math.isfinite, further)) else tends(further)


class _Tried:
    """Kernels at the points of a trial."""

    def __init__(self, trial: Trial, kernels: Both[Kernel], params: Mapping[str, float]) -> None:
        self.trial, self.kernels, self.params = trial, kernels, params

    def outputs(self, which: Pass) -> tuple[int, ...]:
        """Return the outputs of a pass: 0, or the places of the gradients."""
        kernel = self.kernels[which]
        if which is Pass.FORWARD:
            return (0,)
        return tuple(1 + owner for owner in kernel.owners or range(len(kernel.results)))

    def at(self, which: Pass, points: Points, incoming: float | Column = 1.0) -> list[Column]:
        """Return the results of a pass at some points, as floats."""
        kernel = self.kernels[which]
        count = len(next(iter(points.values()))) if points else 1
        given = {name: points[name] for name in kernel.inputs if name in points}
        missing = [name for name in kernel.inputs if name not in points]
        if missing:
            given[missing[0]] = np.broadcast_to(np.asarray(incoming, float), count)
        for name in missing[1:]:  # the output
            given[name] = self.at(Pass.FORWARD, points)[0]
        scalars = {name: round_to(self.params[name], kernel.math) for name in kernel.params}
        given |= {name: np.full(count, number) for name, number in scalars.items()}
        graph = _Kernel(kernel)
        with np.errstate(all="ignore"):
            if kernel.math is Math.DOUBLE:
                values = graph.values(given, DOUBLE)
            else:
                values = graph.values(given, _Stored(), _in_float)
        return [_in_float(values[end]) for end in graph.results]

    def nan(self, which: Pass) -> Iterator[Fault]:
        """Yield the first NaN that is lost, and the first one that is made, of each output."""
        points = self.trial.grid
        has_nan = np.isnan(np.array(list(points.values()))).any(axis=0)
        without = {name: np.where(np.isnan(column), REST, column) for name, column in points.items()}
        eager, plain = (self.trial.eager.by_output(which, each) for each in (points, without))
        for output, own in self.by_output(which, points).items():
            nan = np.isnan(eager[output])
            lost = has_nan & ~np.isnan(own) & nan & ~np.isnan(plain[output])
            made = ~has_nan & np.isnan(own) & ~nan
            for wrong in (lost, made):
                yield from _first("nan", output, points, own, eager[output], wrong)

    def by_output(self, which: Pass, points: Points) -> dict[int, Column]:
        """Return the results of a pass by output."""
        return dict(zip(self.outputs(which), self.at(which, points), strict=True))

    def zeros(self, which: Pass) -> Iterator[Fault]:
        """Yield the zeros at zeros that are not eager's, and NaN that is lost, of each output."""
        points, rows = self.trial.singles
        inputs = np.array([x for _, x in rows])
        eager = self.trial.eager.by_output(which, points)
        exactly = self.trial.eager_in_double.by_output(which, points)
        for output, own in self.by_output(which, points).items():
            right = _same(own, eager[output]) | _same(own, exactly[output])
            lost = np.isnan(inputs) & ~np.isnan(own) & np.isnan(eager[output])
            for wrong, kind in (((inputs == 0) & (own == 0) & ~right, "zero"), (lost, "nan")):
                yield from _first(kind, output, points, own, eager[output], wrong)

    def limits(self, which: Pass) -> Iterator[Fault]:
        """Yield the results at infinities that are no limit though there is one."""
        points, rows = self.trial.singles
        for output, own in self.by_output(which, points).items():
            for n, (place, x) in enumerate(rows):
                if not math.isinf(x) or output not in (0, 1 + place):
                    continue
                limit = self.trial.ends[place, x][output > 0]
                if limit is not None and not _reached(float(own[n]), round_to(limit, Math.FLOAT)):
                    at = {name: float(column[n]) for name, column in points.items()}
                    yield Fault("limit", output, at, float(own[n]), limit)

    def beyond(self, which: Pass) -> Iterator[Fault]:
        """Yield the results that an overflow or an underflow on the way loses, of a function of one tensor."""
        points, kernel = self.trial.sample, self.kernels[which]
        if len(points) != 1 or kernel.math is Math.DOUBLE:
            return
        widened = {each: replace(self.kernels[each], math=Math.DOUBLE) for each in Pass}
        wide = _Tried(self.trial, Both(widened[Pass.FORWARD], widened[Pass.BACKWARD]), self.params)
        for output, own in self.by_output(which, points).items():
            exact = wide.by_output(which, points)[output]
            with np.errstate(all="ignore"):
                judged = (np.abs(exact) >= JUDGED_LEAST) & (np.abs(exact) <= JUDGED_MOST)
                lost = judged & ~(np.abs(own - exact) <= LOST * np.abs(exact) + JUDGED_LEAST)
            yield from _first("beyond", output, points, own, exact, lost)

    def linear(self) -> list[Fault]:
        """Return the first gradient of each output that is not scaled as the incoming gradient is."""
        which, points = Pass.BACKWARD, self.trial.sample
        one = self.by_output(which, points)
        found: dict[int, Fault] = {}
        for scale in self.trial.scales:
            scaled = dict(zip(self.outputs(which), self.at(which, points, scale), strict=True))
            for output, own in scaled.items():
                with np.errstate(all="ignore"):
                    wanted = _in_float(scale * one[output])
                judge = self._unequal if np.isfinite(scale).all() and scale.all() else self._at_limit
                wrong = judge(output, own, one[output], wanted, scale)
                for fault in _first("linear", output, points, own, wanted, wrong, scale):
                    found.setdefault(output, fault)
        return list(found.values())

    def _unequal(self, _: int, own: Column, one: Column, wanted: Column, scale: Column) -> Mask:
        with np.errstate(all="ignore"):
            least = TINY * ROOM
            judged = np.isfinite(one) & np.isfinite(wanted) & (np.minimum(abs(one), abs(wanted)) >= least)
            unequal: Mask = judged & ~(np.abs(own - wanted) <= self.trial.tolerance * np.abs(wanted))
            return unequal

    def _at_limit(self, output: int, own: Column, one: Column, wanted: Column, scale: Column) -> Mask:
        """Zeros of either sign are equal, and NaN may be where eager is wrong."""
        with np.errstate(all="ignore"):
            unequal: Mask = np.isfinite(one) & (np.abs(one) >= TINY * ROOM) & (own != wanted)
        if not (unequal & np.isnan(own)).any():
            return unequal
        eager = self.trial.eager
        given = eager.at(Pass.BACKWARD, self.trial.sample, scale)
        theirs = dict(zip(eager.outputs(Pass.BACKWARD), given, strict=True))[output]
        return unequal & ~(np.isnan(own) & (theirs != wanted))


def _first(
    kind: str,
    output: int,
    points: Points,
    own: Column,
    wanted: Column,
    wrong: Mask,
    incoming: Column | None = None,
) -> Iterator[Fault]:
    """Yield the first point of a mask as a fault, with the number of all."""
    for n in np.flatnonzero(wrong)[:1]:
        at = {name: float(column[n]) for name, column in points.items()}
        grad = 1.0 if incoming is None else float(incoming[n])
        yield Fault(kind, output, at, float(own[n]), float(wanted[n]), grad, int(wrong.sum()))


class _Pieces(_Tried):
    """Kernels of one tensor whose results come from polynomials in pieces."""

    def at(self, which: Pass, points: Points, incoming: float | Column = 1.0) -> list[Column]:
        """Return the results, zeros with the sign of what is next to them."""
        found = super().at(which, points, incoming)
        moved = {name: np.where(x == 0, np.copysign(LEAST_SIZE, x), x) for name, x in points.items()}
        beside = super().at(which, moved, incoming)
        return [
            np.where((own == 0) & (near != 0), np.copysign(own, near), own)
            for own, near in zip(found, beside, strict=True)
        ]


def _same(a: Column, b: Column) -> Mask:
    """Return where numbers have the same sign, too; NaN is NaN."""
    same: Mask = ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    return same


def _reached(given: float, limit: float) -> bool:
    """Return True if a result is a limit, exactly if that is an integer."""
    if given == limit or math.isinf(limit) or limit.is_integer():
        return given == limit
    return abs(given - limit) <= LIMIT * abs(limit)
