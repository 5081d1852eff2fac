"""The boxes of `certify`, at the defaults of scalars and at other values, by IEEE arithmetic.

An estimate adds up the largest errors at the defaults, and compares them with eager's. Two kernels whose
estimates are alike have errors of their own at an input, and other scalars make other terms large: where
ours exceeds 4 ulp and eager's, both are compared in the box around that point, as the rules C1b and C3 do.
Functions count as exact. The exact results are those of double; an error that breaks a rule beside them has
to exceed 4 ulp beside the real number, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fusegen.compiler.estimates import Formula, with_uniforms
from fusegen.compiler.kernel_values import Points, Unbounded, Values, in_float
from fusegen.compiler.misrounded import random_floats
from fusegen.core import budget
from fusegen.core.facts import Excess, Roundoff
from fusegen.core.interval import Point, Truth
from fusegen.core.ir import Kernel, Math, calls
from fusegen.core.method import Both, Pass
from fusegen.core.targets import Device
from fusegen.core.term import Program
from fusegen.lower import lower
from fusegen.numerics.ieee import Column
from fusegen.numerics.roundoff.graph import FLOAT

LOOKED_AT = 6  # combinations of scalars at which an error is compared with the real number
POINTS, BOXES = 256, 3  # at each combination of scalars, and those of them that are judged by their boxes
NEAR, WIDTH = 48, 2.0**-7  # points of a box beside its centre, and its width, as of `certify`
NEIGHBOURS = 4.0  # times the width of a box: a zero in there makes eager the yardstick
SEED = 20261
WORK = 2**12  # operations of a pass, times the combinations of scalars at which a large formula is tried
BEYOND = 2.0**128  # the number after the largest, as which results beyond the range count
# what the contract allows of eager's error, at other scalars and of several tensors (C3), and of one tensor
# (C1), where errors that differ by no more are the same; eager's error from which on that is 4 ulp (C1b)
OF_BOXES, OF_CELLS, NO_YARDSTICK = budget.OF_A_BOX, 1.02, 128.0

Places = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Rows:
    """Inputs, each beside scalars."""

    points: Points  # the inputs
    places: Places  # of the scalars of each, among those that are tried

    def some(self, rows: Places) -> Rows:
        """Return some of them."""
        return Rows({name: column[rows] for name, column in self.points.items()}, self.places[rows])


@dataclass(frozen=True)
class Boxes:
    """The comparison of a pass with eager's operations; all inputs and scalars are evaluated at once."""

    formula: Formula  # as declared, at the defaults
    programs: Both[Program]  # of the passes, with steps that only scalars decide
    in_double: Both[Kernel]  # their kernels in double
    kernels: Both[Kernel]  # those that compute float32 results
    scalars: Sequence[Mapping[str, Fraction]]  # what is tried, the defaults first
    which: Pass  # the pass

    def excesses(self) -> Iterator[Excess]:
        """Yield the largest error of boxes that break the contract, those at the defaults first."""
        rows = self.sample()
        given, reals = self.own(rows), self.real(rows)
        found = [self._broken(output, rows, ulps(given[output], real)) for output, real in reals.items()]
        for _, _, excess in sorted((each for every in found for each in every), key=lambda each: each[:2]):
            yield excess

    def sample(self) -> Rows:
        """Return floats in the judged ranges beside all scalars."""
        found = random_floats(self.formula)
        step = max(1, len(next(iter(found.values()))) // POINTS)
        points = {name: column[::step] for name, column in found.items()}
        places = np.repeat(np.arange(len(self.tried)), len(next(iter(points.values()))))
        return Rows({name: np.tile(column, len(self.tried)) for name, column in points.items()}, places)

    def boxes(self, centres: Rows, of_width: float = 1.0) -> Rows:
        """Return each point and random ones in its box, or in one so many times as wide; masks stay."""
        draw, found = np.random.default_rng(SEED), {}
        for name, column in centres.points.items():
            width = 0.0 if isinstance(self.formula.assume.get(name), Truth) else of_width * WIDTH
            away = width * draw.uniform(-1, 1, (len(column), 1 + NEAR))
            away[:, 0] = 0.0
            found[name] = in_float((column[:, None] * (1 + away)).ravel())
        return Rows(found, np.repeat(centres.places, 1 + NEAR))

    def own(self, rows: Rows) -> dict[int, Column]:
        """Return the results of our kernels, by output."""
        return Values(self.kernels, _at(self._params, rows)).at(self.which, rows.points)

    def eager(self, rows: Rows) -> dict[int, Column]:
        """Return those of eager's operations."""
        return Values(self._eager, _at(self._eager_params, rows)).at(self.which, rows.points)

    def real(self, rows: Rows) -> dict[int, Column]:
        """Return those in double."""
        return Unbounded(self.in_double, _at(self._params, rows)).unrounded(self.which, rows.points)

    @cached_property
    def tried(self) -> list[Point]:
        """The scalars; of a large formula some of them."""
        size = sum(1 for _ in calls(self.kernels[self.which]))
        some = self.scalars[:: max(1, -(-len(self.scalars) * size // WORK))]
        return [{name: float(value) for name, value in values.items()} for values in some]

    @cached_property
    def _params(self) -> list[Point]:
        return [with_uniforms(scalars, *self.programs) for scalars in self.tried]

    @cached_property
    def _eager_params(self) -> list[Point]:
        return [with_uniforms(scalars, *self.formula.eager_programs) for scalars in self.tried]

    @cached_property
    def _eager(self) -> Both[Kernel]:
        return self.formula.eager_programs.map(lambda each: lower("eager", each, Device.CPU, Math.FLOAT))

    def _broken(self, output: int, rows: Rows, errors: Column) -> Iterator[tuple[int, int, Excess]]:
        """Yield the place of scalars, an output and its error, once for each of these."""
        centres = rows.some(self._centres(output, rows, errors))
        places = centres.places
        if not len(places):
            return
        boxes = self.boxes(centres)
        real = self.real(boxes)[output]
        own, eager = (each.reshape(-1, 1 + NEAR) for each in self._errors(output, boxes, real))
        around = self.real(self.boxes(centres, NEIGHBOURS))[output]
        signs = np.sign(np.nan_to_num(around)).reshape(own.shape)
        near_zero = signs.min(axis=1) != signs.max(axis=1)
        over = [self._over(*each, places, near_zero) for each in _compared(own, eager)]
        for place in sorted({*places[np.any(over, axis=0)].tolist()})[:LOOKED_AT]:
            box = int(np.flatnonzero(np.any(over, axis=0) & (places == place))[0])
            at = box * (1 + NEAR) + int(np.argmax(own[box]))
            error, point = self._confirmed(output, boxes.some(np.array([at])))
            if error > budget.RESULT_ULP:
                yield place, output, Excess(Roundoff(error, point, ""), float(eager[box].max()))
                if place:
                    return

    def _centres(self, output: int, rows: Rows, errors: Column) -> Places:
        """Return the points of each combination of scalars whose errors exceed what is allowed by most."""
        suspect = np.flatnonzero(errors > budget.RESULT_ULP)
        if not len(suspect):
            return suspect
        some = rows.some(suspect)
        own, eager = self._errors(output, some, self.real(some)[output])
        allowed = self._over(own, eager / OF_BOXES, some.places, np.zeros(len(suspect), bool))
        order = np.lexsort((-allowed, some.places))
        places = some.places[order]
        first = np.searchsorted(places, places)  # of each combination
        return suspect[order[(np.arange(len(order)) - first < BOXES) & (allowed[order] > 0)]]

    def _errors(self, output: int, rows: Rows, real: Column) -> tuple[Column, Column]:
        """Return our errors and eager's; where eager overflows, neither that nor ours counts."""
        own, eager = self.own(rows)[output], self.eager(rows)[output]
        lost, gone = (np.isinf(given) & np.isfinite(in_float(real)) for given in (own, eager))
        return np.where(lost & gone, 0.0, ulps(own, real)), np.where(gone, 0.0, ulps(eager, real))

    def _over(self, own: Column, eager: Column, places: Places, near_zero: npt.NDArray[np.bool_]) -> Column:
        """Return by how much errors exceed what is allowed, as a ratio; 0 where they do not."""
        of_cells = (places == 0) & ~near_zero & (len(self.formula.declared.inputs) == 1)
        allowed = np.where(of_cells, OF_CELLS, OF_BOXES) * eager
        bound = np.maximum(np.where(of_cells & (eager > NO_YARDSTICK), 0.0, allowed), budget.RESULT_ULP)
        with np.errstate(all="ignore"):
            return np.where(own > bound, own / bound, 0.0)

    def _confirmed(self, output: int, row: Rows) -> tuple[float, Point]:
        """Return the error at a point beside the real number, and the point with its scalars."""
        inputs = {name: float(column[0]) for name, column in row.points.items()}
        point = {**inputs, **self.tried[int(row.places[0])]}
        real = self.formula.exact.at(self.which, point)[max(output - 1, 0)]
        error = ulps(self.own(row)[output], np.array([real]))[0]
        return 0.0 if math.isnan(real) else float(error), point


def _at(params: Sequence[Point], rows: Rows) -> dict[str, Column]:
    """Return scalars as columns beside points."""
    return {name: np.array([each[name] for each in params])[rows.places] for name in params[0]}


def _compared(own: Column, eager: Column) -> Iterator[tuple[Column, Column]]:
    """Yield what is compared of the errors in each box: the largest, the median, and a lost centre."""
    yield own.max(axis=1), eager.max(axis=1)
    yield np.median(own, axis=1), np.median(eager, axis=1)
    yield np.where(np.isinf(own[:, 0]), np.inf, 0.0), eager[:, 0]


def ulps(given: Column, real: Column) -> Column:
    """Return the errors of floats in ulp; infinite of NaN, and of infinity where the result is finite.

    Where double knows no result, finite ones count as right.
    """
    with np.errstate(all="ignore"):
        whole = np.clip(real, -BEYOND, BEYOND)
        found = np.abs(np.where(np.abs(whole) == BEYOND, np.clip(given, -BEYOND, BEYOND), given) - whole)
        found = found / FLOAT.unit(whole)
    unknown = np.where(np.isfinite(given), 0.0, np.inf)
    return np.where(np.isnan(real), unknown, np.where(np.isnan(given), np.inf, found))
