"""The estimated errors of a spec's kernels, and of eager's operations on the same sample.

The exact results are those of the formula as declared, whatever form a kernel computes it in.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from fusegen.algebra.compose import expanded
from fusegen.algebra.derive import aten_gradient, attached, derive, derive_eager, is_arithmetic
from fusegen.algebra.hoist import hoisted
from fusegen.algebra.simplify import simplify
from fusegen.algebra.simplify.constants import constants_folded
from fusegen.algebra.simplify.search import LOST, Score
from fusegen.algebra.simplify.written import one_operation_a_step, written_out
from fusegen.compiler.exact_results import ExactResults, exact_results
from fusegen.core import budget
from fusegen.core.facts import Roundoff
from fusegen.core.interval import Interval, Point
from fusegen.core.ir import Kernel, Math, round_to
from fusegen.core.method import Both, Pass
from fusegen.core.targets import Device
from fusegen.core.term import Program, Term
from fusegen.lower import lower, uniforms
from fusegen.lower.tails import PRESCALED
from fusegen.numerics.ieee import Column
from fusegen.numerics.reals import Reals
from fusegen.numerics.roundoff import Errors, blamed, errors, evaluated
from fusegen.numerics.roundoff.beyond import first_beyond, lost_in_range, points
from fusegen.numerics.roundoff.graph import FLOAT, Range
from fusegen.numerics.sample import EVERY_SIZE, Sample, Tried, sampled


@dataclass(frozen=True)
class Formula:
    """A formula as declared, and the errors to expect of programs that compute it."""

    declared: Program  # over the real numbers
    eager: Program  # in PyTorch's own operations
    params: Point  # the values of its scalars
    assume: Mapping[str, Interval]  # intervals that its inputs lie in
    tried: Tried = EVERY_SIZE  # what its inputs take
    within: Range = FLOAT  # the range of eager's values, which have float's digits

    @cached_property
    def exact(self) -> ExactResults:
        """Its results over the real numbers."""
        return exact_results(self.declared)

    @cached_property
    def samples(self) -> tuple[Sample, Sample]:
        """Points with exact results, of the value and of the gradients."""
        ranges = ((name, interval, repr(interval)) for name, interval in self.assume.items())
        numbers = ((name, number, repr(number)) for name, number in self.params.items())
        return _samples(self.declared, tuple(numbers), tuple(ranges), self.tried)

    def sample(self, kernel: Kernel) -> Sample:
        """Return the points that a kernel is tried at, with exact results.

        What a gradient reads beside the inputs is the output.
        """
        forward, backward = self.samples
        incoming = next(iter(name for name in backward.points[0] if name not in self.declared.inputs))
        if not set(kernel.inputs) - set(self.declared.inputs):
            return forward
        key = (tuple(kernel.inputs), kernel.owners)
        if key in self._samples_of_gradients:
            return self._samples_of_gradients[key]
        grad, *read = kernel.inputs
        points = []
        for point, (value, *_) in zip(backward.points, forward.reals, strict=True):
            saved = {name: point.get(name, round_to(value, Math.FLOAT)) for name in read}
            points.append({**point, grad: point[incoming], **saved})
        reals = tuple(tuple(row[k] for k in kernel.owners or range(len(row))) for row in backward.reals)
        found = replace(backward, points=tuple(points), reals=reals)
        return self._samples_of_gradients.setdefault(key, found)

    def score(self, program: Program, incoming: str) -> Score:
        """Return the number of results of a program that lose digits in float, and the largest error.

        Beside those at the sample it counts the ones that are lost in an overflow or an underflow anywhere,
        and those of them that are NaN.
        """
        program = constants_folded(attached(program))
        kernel = self._in_float(program, incoming)
        found = np.array(errors(kernel, self.sample(kernel), with_uniforms(self.params, program)).ulp)
        nan, beyond = self._beyond(program, incoming)
        return int((found > LOST).sum()), beyond, float(found.max(initial=0.0)), nan

    def _beyond(self, program: Program, incoming: str) -> tuple[int, int]:
        """The number of results that are lost in overflows and underflows; none where an output is read."""
        whole = written_out(program)
        if whole is None or set(program.inputs) - {*self.declared.inputs, incoming}:
            return 0, 0
        kernel = self._in_float(whole, incoming)
        return lost_in_range(kernel, self._of_every_size(kernel, incoming))

    def blamed(self, program: Program, incoming: str) -> frozenset[Term]:
        """Return the terms of a program without steps in which results lose their digits in float."""
        stepwise, terms = one_operation_a_step(constants_folded(attached(program)))
        kernel = self._in_float(stepwise, incoming)
        found = blamed(kernel, self.sample(kernel), with_uniforms(self.params, stepwise), LOST)
        steps = {step.removesuffix(PRESCALED) for step in found}  # of the step that is prescaled
        if set(kernel.inputs) <= {*self.declared.inputs, incoming}:
            steps |= first_beyond(kernel, self._of_every_size(kernel, incoming))
        return frozenset(terms[step] for step in steps if step in terms)

    def _in_float(self, program: Program, incoming: str) -> Kernel:
        precise = not is_arithmetic(expanded(self.declared), program)
        return lower("estimated", program, Device.CPU, Math.FLOAT, precise, incoming or None)

    def _of_every_size(self, kernel: Kernel, incoming: str) -> Mapping[str, Column]:
        """Return points at which inputs and scalars have any size."""
        return points(kernel, incoming, self.params, self.assume)

    def eager_error(self, device: Device, which: Pass) -> Roundoff:
        """Return the largest estimated error of eager's operations in float."""
        return next(self.eager_errors(device, which).descending())

    def eager_errors(self, device: Device, which: Pass) -> Errors:
        """Return the estimated errors of eager's operations in float."""
        if (device, which) not in self._eager_errors:
            program = self.eager_programs[which]
            kernel = lower("eager", program, device, Math.FLOAT)
            params = with_uniforms(self.params, program)
            self._eager_errors[device, which] = errors(kernel, self.sample(kernel), params, self.within)
        return self._eager_errors[device, which]

    def eager_at(self, kernel: Kernel) -> Column:
        """The estimated errors of eager's operations, by point of a kernel's sample and by its results."""
        which = Pass.BACKWARD if set(kernel.inputs) - set(self.declared.inputs) else Pass.FORWARD
        found = self.eager_errors(kernel.device, which).columns
        return found[:, list(kernel.owners)] if kernel.owners else found

    def enough(self, device: Device, which: Pass) -> float:
        """Return the largest estimated error in float that is none above eager's, in ulp."""
        return self.eager_error(device, which).ulp + 2 * budget.ROUNDING_ULP

    @cached_property
    def _eager_errors(self) -> dict[tuple[Device, Pass], Errors]:
        """Those that were asked for already: an estimate takes long where a formula is large."""
        return {}

    @cached_property
    def _samples_of_gradients(self) -> dict[tuple[tuple[str, ...], tuple[int, ...]], Sample]:
        """Those of kernels with some inputs and results."""
        return {}

    @cached_property
    def eager_programs(self) -> Both[Program]:
        """Eager's operations, forward and backward; Python computes what only scalars decide, in double."""
        return _eager_programs(self.eager, tuple(self.assume.items()))


@lru_cache(maxsize=16)
def _eager_programs(eager: Program, assume: tuple[tuple[str, Interval], ...]) -> Both[Program]:
    backward = aten_gradient(eager) or derive_eager(eager)
    found = Both(eager, backward).map(lambda each: simplify(expanded(attached(each)), dict(assume))[0])
    return Both(*hoisted(tuple(found)))


@lru_cache(maxsize=256)
def _samples(
    declared: Program,  # over the real numbers
    # names, values and what tells a value from its equals, as zeros of either sign are
    params: tuple[tuple[str, float, str], ...],
    assume: tuple[tuple[str, Interval, str], ...],  # the same of intervals that inputs lie in
    tried: Tried,  # what one of the inputs takes
) -> tuple[Sample, Sample]:
    """Return the samples of a formula, whose exact results take a fifth of the time that a spec takes."""
    numbers = {name: number for name, number, _ in params}
    ranges = {name: interval for name, interval, _ in assume}
    value, gradient = expanded(declared), derive(expanded(declared))
    forward = sampled(value.inputs, "", numbers, ranges, Reals(value), tried)
    incoming, *read = gradient.inputs
    if len(value.inputs) == 1 and value.inputs[0] in ranges:  # an output in its place takes its points
        ranges |= dict.fromkeys(read, ranges[value.inputs[0]])
    backward = sampled(gradient.inputs, incoming, numbers, ranges, Reals(gradient), tried)
    both = zip(forward.reals, backward.reals, strict=True)
    defined = (tuple(math.nan for _ in slopes) if math.isnan(y) else slopes for (y,), slopes in both)
    return forward, replace(backward, reals=tuple(defined))


def with_uniforms(params: Point, *programs: Program) -> dict[str, float]:
    """Return the values of scalars, with those that only they decide."""
    found = dict(params)
    for program in programs:
        for let in uniforms(program):
            found[let.name] = evaluated(let.value, found)
    return found
