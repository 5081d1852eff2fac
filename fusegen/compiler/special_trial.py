"""A kernel beside eager's operations at special inputs, and at incoming gradients that are powers of two.

Both are evaluated in IEEE arithmetic, a number for each operation, and judged as `certify` judges results:

zero     a result that is a zero at a zero input is eager's
nan      NaN where eager has NaN of a NaN; else nowhere where eager has none, at other scalars, too
made     of a NaN, NaN where eager has a number: no fault, but no mend makes more of them than it takes away
limit    at an infinity the limit, where there is one
linear   times a power of two, a gradient is that of 1 times it, as long as neither leaves the range; of one
         tensor to the last bit where low words underflow
beyond   of one tensor no result is lost in an overflow or an underflow on the way

What is special: NaN, infinities, zeros, the least and the largest number, up to three inputs at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from fusegen.algebra.compose import expanded
from fusegen.algebra.derive import aten_gradient, attached, derive_written
from fusegen.algebra.simplify import simplify
from fusegen.compiler.estimates import Formula, with_uniforms
from fusegen.compiler.kernel_values import InPieces, InRange, Points, Unbounded, Values, in_float
from fusegen.compiler.trial_edges import at_edges
from fusegen.compiler.trial_faults import LEAST, MADE, Fault, first, reached, same, unequal
from fusegen.compiler.trial_limits import TrialLimits
from fusegen.compiler.trial_points import REST, TrialPoints
from fusegen.core.interval import Interval
from fusegen.core.ir import Kernel, Math, round_to
from fusegen.core.method import Both, Pass
from fusegen.core.targets import Device
from fusegen.core.term import Program
from fusegen.lower import lower
from fusegen.numerics.ieee import Column
from fusegen.numerics.roundoff.graph import LARGEST
from fusegen.numerics.roundoff.local import Mask

Ranges = tuple[tuple[str, Interval], ...]
KINDS = frozenset(("zero", "nan", "limit", "linear"))  # that are faults
OTHER_SCALARS = (0.0, -0.75, 2.0**-30, 2.0**30)
LIMITS = lru_cache(maxsize=16)(TrialLimits)  # whose exact values many candidates ask for
SCALES = (-2.0, 1 / 8)  # incoming gradients
LEAST_LOST, MOST_LOST, LOST = 2.0**-141, LARGEST / 16, 2.0**-17  # results that are judged, what they lose


@dataclass(frozen=True)
class Trial:
    """The comparison of programs with eager's operations."""

    formula: Formula  # as declared
    programs: Both[Program]  # of both passes, with steps that only scalars decide

    def faults(self, kernels: Both[Kernel], which: Pass) -> list[Fault]:
        """Return the faults of a pass that kernels of the programs compute."""
        own = Values(kernels, self.params)
        found = [*self._nan(own, which), *self._singly(own, which), *self._limits(own, which)]
        found += [fault for each in self._at_scalars for fault in each._undefined(kernels, which)]
        if which is Pass.BACKWARD:
            found += self._linear(own) or self._of_low_words(own)
        return found

    def zeros_of_pieces(self, kernels: Both[Kernel], which: Pass) -> list[Fault]:
        """Return the faults at zeros where polynomials in pieces give the results of kernels."""
        found = self._singly(InPieces(kernels, self.params), which)
        return [fault for fault in found if fault.kind == "zero"]

    def beyond(self, kernels: Both[Kernel], which: Pass) -> Iterator[Fault]:
        """Yield the first result of each output that is lost on the way, of a function of one tensor."""
        if len(self.names) != 1 or kernels[which].math is Math.DOUBLE:
            return
        points = self.points.sample
        exact = Unbounded(kernels, self.params).at(which, points)
        for output, own in InRange(kernels, self.params).at(which, points).items():
            size = np.abs(exact[output])
            with np.errstate(all="ignore"):
                near = np.abs(own - exact[output]) <= LOST * size + LEAST_LOST
            lost = (size >= LEAST_LOST) & (size <= MOST_LOST) & ~near
            yield from first("beyond", output, points, (own, exact[output]), lost)

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs."""
        return self.formula.declared.inputs

    @cached_property
    def points(self) -> TrialPoints:
        """The inputs that are tried."""
        return _points(self.names, tuple(self.formula.assume.items()))

    @cached_property
    def limits(self) -> TrialLimits:
        """The limits of the formula."""
        return LIMITS(self.formula.declared)

    @cached_property
    def params(self) -> Mapping[str, float]:
        """The values of scalars and of what only they decide."""
        return with_uniforms(self.formula.params, *self.programs)

    @cached_property
    def _at_scalars(self) -> list[Trial]:
        """The same with other scalars: one at a time, and all of them negative."""
        own = self.formula.params
        found = [{**own, name: value} for name in own for value in OTHER_SCALARS if value != own[name]]
        found += [{name: -abs(value) for name, value in own.items()}] if own else []
        return [replace(self, formula=replace(self.formula, params=params)) for params in found]

    @cached_property
    def _written(self) -> Both[Program]:
        return _written(self.formula.eager, tuple(self.formula.assume.items()))

    def _eager_in(self, kind: Math) -> Values:
        kernels = self._written.map(lambda program: lower("eager", program, Device.CPU, kind))
        return Values(kernels, with_uniforms(self.formula.params, *self._written))

    @cached_property
    def eager(self) -> Values:
        """Eager's operations in float."""
        return self._eager_in(Math.FLOAT)

    def _nan(self, values: Values, which: Pass) -> Iterator[Fault]:
        """Yield the first NaN that is lost, and the first ones that are made, of each output."""
        points = self.points.grid
        has_nan = np.isnan(np.array(list(points.values()))).any(axis=0)
        without = {name: np.where(np.isnan(column), REST, column) for name, column in points.items()}
        eager, plain = self.eager.at(which, points), self.eager.at(which, without)
        for output, own in values.at(which, points).items():
            nan = np.isnan(eager[output])
            lost = has_nan & ~np.isnan(own) & nan & ~np.isnan(plain[output])
            made = np.isnan(own) & ~nan
            for kind, wrong in (("nan", lost), ("nan", made & ~has_nan), (MADE, made & has_nan)):
                yield from first(kind, output, points, (own, eager[output]), wrong)

    def _singly(self, values: Values, which: Pass) -> Iterator[Fault]:
        """Yield the zeros at zeros that are not eager's, and NaN that is lost, of each output."""
        points, inputs = self.points.singles, np.array([x for _, x in self.points.rows])
        eager, exactly = self.eager.at(which, points), self._eager_in(Math.DOUBLE).at(which, points)
        for output, own in values.at(which, points).items():
            other = (inputs == 0) & (own == 0) & ~same(own, eager[output]) & ~same(own, exactly[output])
            lost = np.isnan(inputs) & ~np.isnan(own) & np.isnan(eager[output])
            for wrong, kind in ((other, "zero"), (lost, "nan")):
                yield from first(kind, output, points, (own, eager[output]), wrong)

    def _limits(self, values: Values, which: Pass) -> Iterator[Fault]:
        """Yield the results at infinities that are no limit though there is one."""
        points, others = self.points.singles, {**self.formula.params, **dict.fromkeys(self.names, REST)}
        for output, own in values.at(which, points).items():
            for n, (place, x) in enumerate(self.points.rows):
                if not math.isinf(x) or output not in (0, 1 + place):
                    continue
                limit = self.limits.at(output, self.names[place], x, others)
                if limit is not None and not reached(float(own[n]), round_to(limit, Math.FLOAT)):
                    at = {name: float(column[n]) for name, column in points.items()}
                    yield Fault("limit", output, at, float(own[n]), limit)

    def _undefined(self, kernels: Both[Kernel], which: Pass) -> Iterator[Fault]:
        """Yield the first finite inputs, of each output, at which it is NaN, but eager's is a number."""
        points = self.points.finite
        eager = self.eager.at(which, points)
        for output, own in Values(kernels, self.params).at(which, points).items():
            wrong = np.isnan(own) & np.isfinite(eager[output])
            for fault in first("nan", output, points, (own, eager[output]), wrong):
                yield replace(fault, at={**fault.at, **self.formula.params})

    def _linear(self, values: Values) -> list[Fault]:
        """Return the first gradient of each output that is not scaled as the incoming gradient is."""
        points, seen, found = self._with_edges(values), set[int](), list[Fault]()
        one = values.at(Pass.BACKWARD, points)
        for scale in self.points.incoming(len(one[1])):
            for output, own in values.at(Pass.BACKWARD, points, scale).items():
                with np.errstate(all="ignore"):
                    wanted = in_float(scale * one[output])
                    judged = np.isfinite(one[output]) & (np.abs(one[output]) >= LEAST)
                    if np.isfinite(scale).all() and scale.all():
                        wrong = judged & unequal(own, wanted)
                    else:
                        at_limit = judged & (own != wanted)
                        wrong = at_limit & ~self._as_eager(output, points, scale, own, wanted)
                if output not in seen and wrong.any():
                    seen.add(output)
                    [fault] = first("linear", output, points, (own, wanted), wrong)
                    found.append(replace(fault, incoming=float(scale[int(np.argmax(wrong))])))
        return found

    def _of_low_words(self, values: Values) -> list[Fault]:
        """Return the first gradient of one tensor whose last bit an incoming one changes."""
        if len(self.names) != 1 or values.kernels.backward.math is Math.DOUBLE:
            return []
        points = self.points.tiny
        [(output, one)] = values.at(Pass.BACKWARD, points).items()
        for scale in SCALES:
            own, wanted = values.at(Pass.BACKWARD, points, scale)[output], scale * one
            judged = np.isfinite(one) & (np.minimum(np.abs(one), np.abs(wanted)) >= LEAST)
            if found := [*first("linear", output, points, (own, wanted), judged & (own != wanted))]:
                return [replace(fault, incoming=scale) for fault in found]
        return []

    def _as_eager(self, output: int, points: Points, scale: Column, own: Column, wanted: Column) -> Mask:
        """Return where a gradient is NaN and eager's is not what it should be either."""
        nan: Mask = np.isnan(own)
        if not nan.any():
            return nan
        nan &= self.eager.at(Pass.BACKWARD, points, scale)[output] != wanted
        return nan

    def _with_edges(self, values: Values) -> Points:
        """Return the sample; of several tensors with points where a value is about to overflow, too."""
        sample = self.points.sample
        if len(self.names) == 1:
            return sample
        edges = at_edges(values, Pass.BACKWARD, sample)
        return {name: np.concatenate([column, edges[name]]) for name, column in sample.items()}


@lru_cache(maxsize=16)
def _points(names: tuple[str, ...], assume: Ranges) -> TrialPoints:
    return TrialPoints(names, dict(assume))


@lru_cache(maxsize=16)
def _written(eager: Program, assume: Ranges) -> Both[Program]:
    backward = attached(aten_gradient(eager) or derive_written(eager))
    return Both(eager, backward).map(lambda each: simplify(expanded(attached(each)), dict(assume))[0])
