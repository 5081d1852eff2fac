"""The facts of both passes: estimated errors, instruction counts and what the kernels read.

Float is accurate enough within a few ulp, or eager's error, or where double would err by as much.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fusegen.compiler.estimates import Formula, with_uniforms
from fusegen.compiler.kernel_values import Values
from fusegen.compiler.local_excess import Estimated, contract, exceeding, excess, is_subnormal, tolerated
from fusegen.compiler.next_to_zeros import next_to_zeros
from fusegen.compiler.zeros_of_sums import next_to_zeros_of_sums
from fusegen.core import budget
from fusegen.core.cubic import UNIFORM, UniformGrid, fits
from fusegen.core.dtypes import ELEMENTS, maths
from fusegen.core.facts import Curves, Estimate, Excess, Facts, Missed
from fusegen.core.interval import Point
from fusegen.core.ir import Body, Kernel, Math, Word, calls, depend, operations
from fusegen.core.method import Arithmetic, Both, Pass, Variant
from fusegen.core.ops import TRANSCENDENTAL, TURNS
from fusegen.core.spec import Spec
from fusegen.core.targets import Device
from fusegen.core.term import Program
from fusegen.lower.approximations import approximates, errs
from fusegen.lower.variants import Kernels
from fusegen.numerics.grids import uniform_grid
from fusegen.numerics.roundoff import Errors, errors, function, roundoff
from fusegen.numerics.roundoff.curves import by_curves
from fusegen.numerics.roundoff.graph import DOUBLE
from fusegen.numerics.roundoff.results import NEAR_LARGEST
from fusegen.numerics.sample import LARGEST, OF_16_BITS
from fusegen.schedule import cost

IN_16_BITS = tuple(
    "fast_errs verification_hides compute_bound_in_16_bits approximates_on_cpu shorter_on_cpu".split()
)


@dataclass(frozen=True)
class Measured:
    """The subject of measured facts."""

    spec: Spec  # the spec
    formula: Formula  # the formula as declared, which errors are estimated against
    programs: Both[Program]  # the programs that are lowered
    kernels: Kernels  # what they are lowered to
    curves: Both[Curves | None]  # the passes by curves, where these are accurate enough
    missed: Both[Missed]  # the 16-bit inputs at which the passes miss their promise
    approximates: bool  # whether the kernels compute neither eager's operations nor PyTorch's exact bits

    @cached_property
    def in_16_bits(self) -> Formula:
        """The formula, tried with numbers of 16 bits."""
        return replace(self.formula, tried=OF_16_BITS)

    @cached_property
    def at_largest(self) -> Formula:
        """The formula, tried with the largest numbers."""
        return replace(self.formula, tried=LARGEST)


def measure(of: Measured) -> Both[Facts]:
    """Return the facts of both passes."""
    in_16_bits = Arithmetic.FAST_FLOAT if approximates(of.kernels.values()) else Arithmetic.FLOAT
    return Both.of(lambda which: _Pass(of, which).facts(in_16_bits))


class _Pass:
    def __init__(self, of: Measured, which: Pass) -> None:
        self.of, self.which = of, which
        self.widths = {ELEMENTS[dtype].bits for dtype in of.spec.dtypes}
        self.params = with_uniforms(of.formula.params, *of.programs)
        self.in_double = self.kernel(Device.CUDA, Variant.DOUBLE)
        self.unary = cost.is_unary(self.in_double, which.arity)
        self.has_turns = not TURNS.isdisjoint(operations(self.in_double))

    def kernel(self, device: Device, variant: Variant) -> Kernel:
        return self.of.kernels[self.which, device, variant]

    def in_float(self, device: Device) -> Both[Kernel]:
        """Return the kernels of float32 results of both passes in float on a device."""
        of, form = self.of.kernels, Variant.SINGLE_RESULT
        return Both.of(lambda which: of.get((which, device, form)) or of[which, device, Variant.FLOAT])

    def facts(self, in_16_bits: Arithmetic) -> Facts:
        """Return the facts of the pass, by the arithmetic that the module's 16-bit results have on CUDA."""
        pays = self.piecewise_pays()
        grid = uniform_grid(function(self.in_double, self.params)) if pays else None
        estimates = self.estimates(grid)
        double = estimates[Device.CUDA].in_double if estimates else math.inf
        return Facts(
            unary=self.unary,
            reads_params=bool(self.in_double.params),
            has_params=bool(self.of.spec.scalars),
            float_ok=self.float_ok(estimates),
            float_ok_in_16_bits=self.float_ok_in_16_bits(estimates),
            loses_16_bits={device: self.loses_16_bits(device, estimates) for device in Device},
            missed=self.of.missed[self.which],
            plain_double_ok=double <= budget.PLAIN_DOUBLE_ENOUGH,
            fast=in_16_bits is Arithmetic.FAST_FLOAT,
            piecewise_pays=pays,
            estimates=estimates,
            grid=grid,
            curves=self.of.curves[self.which],
            has_turns=self.has_turns,
            in_single_words=(self.which, Device.CPU, Variant.SINGLE_RESULT) in self.of.kernels,
            **self.in_16_bits(in_16_bits),
        )

    def piecewise_pays(self) -> bool:
        """Return True if a piecewise cubic computes float32 results in less time on CUDA."""
        return (
            self.approximate(32)
            and not self.has_turns
            and cost.piecewise_pays(self.kernel(Device.CUDA, Variant.FLOAT), self.which.arity)
        )

    def approximate(self, bits: int) -> bool:
        """Return True if the spec has elements of some width, and their results are approximations."""
        return self.of.approximates and bits in self.widths

    def estimates(self, grid: UniformGrid | None) -> dict[Device, Estimate]:
        """Return the estimated errors by device; none of what PyTorch's own operations compute."""
        if not self.of.approximates or Math.FLOAT not in maths(self.of.spec.dtypes):
            return {}
        given = {Device.CUDA: self.by_piece(grid), Device.CPU: _nowhere}
        return {device: self.estimate(device, given[device.like]) for device in Device}

    def estimate(self, device: Device, given: Callable[[Point], bool]) -> Estimate:
        """Return the estimated errors on a device, but for points that a piece of a cubic gives."""
        formula, kernel = self.of.formula, self.in_float(device)[self.which]
        estimated = self.estimated(kernel, given)
        single = next(estimated(formula).descending())
        # double is no method where eager fails as well, nor for subnormal operands
        allowed = tolerated(kernel)
        decisive = self.estimated(kernel, lambda at: given(at) or is_subnormal(at, formula.declared.inputs))
        next_to_zero = next_to_zeros(formula, kernel, estimated) if self.unary else None
        found = self.overflow(device, given) or excess(formula, kernel, decisive, allowed) or next_to_zero
        if found is None:
            found = excess(formula, kernel, estimated, contract(kernel))
            found = found or next_to_zeros_of_sums(
                formula, Values(self.in_float(device), self.params), self.which
            )
            return Estimate(single, found, None, float_ok=True)
        in_double = errors(kernel, formula.sample(kernel), self.params, within=DOUBLE).columns
        double = float(in_double[exceeding(decisive, allowed, formula)].max(initial=0.0))
        return Estimate(single, found, double, float_ok=not double * budget.IN_DOUBLE < found.own.ulp)

    def estimated(self, kernel: Kernel, given: Callable[[Point], bool]) -> Estimated:
        """The errors of a kernel, or of curves where the plan takes these; 0 where a piece gives them."""
        own = self.of.curves[self.which]
        curves = own if own and own.saves and kernel.device.like is Device.CUDA else None

        def found(formula: Formula) -> Errors:
            computed = errors(kernel, formula.sample(kernel), self.params).but(given)
            if not curves:
                return computed
            fitted, missing = by_curves(curves, formula.sample(curves.kernel), self.params)
            return fitted.but(missing, computed)

        return found

    def overflow(self, device: Device, given: Callable[[Point], bool]) -> Excess | None:
        """The first of the largest numbers at which float overflows, but eager's operations do not."""
        formula, kernel = self.of.at_largest, self.kernel(device, Variant.FLOAT)
        if not self.unary:
            return None
        own, eager = self.estimated(kernel, given)(formula), formula.eager_at(kernel)
        for point, result in np.argwhere(np.isinf(own.columns) & np.isfinite(eager)):
            return Excess(own.at(point, result), float(eager[point, result]))
        return None

    def by_piece(self, grid: UniformGrid | None) -> Callable[[Point], bool]:
        """Return a predicate of points: a piece of a cubic gives the result."""
        if grid is None:
            return _nowhere
        fitted = fits(grid, function(self.in_double, self.params), UNIFORM)
        return lambda point: fitted(point[self.of.formula.declared.inputs[0]])

    def float_ok(self, estimates: Mapping[Device, Estimate]) -> dict[Device, bool]:
        """By device, True if float is accurate enough; turns of a scalar are exact in double only."""
        if depend(self.in_double, TURNS, self.in_double.params):
            return dict.fromkeys(Device, False)
        found = {device: device not in estimates or estimates[device].float_ok for device in Device}
        if 32 not in self.widths:  # no result on CUDA keeps more than 16 bits
            found[Device.CUDA] |= self.float_ok_in_16_bits(estimates)
        return found

    def float_ok_in_16_bits(self, estimates: Mapping[Device, Estimate]) -> bool:
        """Return True if float is accurate enough for 16-bit results on CUDA that no table can hold."""
        if 16 not in self.widths or not estimates or self.unary:
            return False
        return estimates[Device.CUDA].single.ulp <= budget.FLOAT_ENOUGH_IN_16_BITS

    def loses_16_bits(self, device: Device, estimates: Mapping[Device, Estimate]) -> bool:
        """Return True if float's error is too large for the 16-bit results of a function of one tensor."""
        if device not in estimates or 16 not in self.widths:
            return False
        if self.of.missed[self.which].by_float[device.like]:
            return True
        if not self.unary or estimates[device].single.ulp <= budget.LOST_IN_16_BITS:
            return False
        kernel = self.kernel(device, Variant.FLOAT)
        sample = self.of.in_16_bits.sample(kernel)
        large = {  # eager overflows early, too
            id(at)
            for at, reals in zip(sample.points, sample.reals, strict=True)
            if max(map(abs, reals)) > NEAR_LARGEST
        }
        found = roundoff(kernel, sample, self.params, given=lambda at: id(at) in large)
        return found.ulp > budget.LOST_IN_16_BITS

    def in_16_bits(self, arithmetic: Arithmetic) -> dict[str, bool]:
        """Return the facts of 16-bit results."""
        if not self.approximate(16):
            return dict.fromkeys(IN_16_BITS, False)
        single, on_cpu = (self.kernel(device, Variant.FLOAT) for device in (Device.CUDA, Device.CPU))
        single_word = self.kernel(Device.CPU, Variant.SINGLE_WORD)
        values = (
            arithmetic is Arithmetic.FAST_FLOAT and errs(single),
            cost.verification_hides(single, self.in_double, arithmetic),
            cost.compute_bound(single, arithmetic),
            not TRANSCENDENTAL.isdisjoint(operations(on_cpu)),
            _arithmetic(single_word) != _arithmetic(on_cpu),
        )
        return dict(zip(IN_16_BITS, values, strict=True))


def _arithmetic(kernel: Kernel) -> list[tuple[str, Word, Body | None]]:
    return [(call.op, call.word, call.body) for call in calls(kernel)]


def _nowhere(_: Point) -> bool:
    return False
