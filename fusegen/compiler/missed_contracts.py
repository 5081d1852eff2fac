"""The results whose estimated error misses the contract, by pass, device and dtype.

`measure` has the estimates of float32. Those of the other dtypes are made here, in the arithmetic that the
plan takes: float64 in double's range, 16 bits at 16-bit inputs. Double errs by 2^-29 of what float does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from fusegen.compiler.boxes_at_scalars import Boxes
from fusegen.compiler.estimates import Formula, with_uniforms
from fusegen.compiler.local_excess import Allowed, Estimated, contract, excess
from fusegen.compiler.pipeline import Compiled
from fusegen.compiler.zeros_at_scalars import OtherScalars, defaults_and_others
from fusegen.core import budget
from fusegen.core.dtypes import ELEMENTS
from fusegen.core.facts import Excess
from fusegen.core.ir import Kernel
from fusegen.core.method import DOUBLE, FAST, PLAIN, Both, Method, Pass, Variant, parts
from fusegen.core.method import Formula as Computed
from fusegen.core.targets import Device
from fusegen.lower.collapsed import collapsed
from fusegen.numerics.ieee import Column
from fusegen.numerics.roundoff import errors, graph
from fusegen.numerics.roundoff.local import Mask
from fusegen.numerics.sample import OF_16_BITS

# digits, the exponent of the least number and that above the largest
IN_16_BITS = {"float16": (11, -24, 16), "bfloat16": (8, -133, 128)}
WITHOUT_LOW_WORDS = (FAST, PLAIN)
NEIGHBOUR = 0.5  # ulp of a 16-bit type: with a larger error a result may be beyond the neighbour


@dataclass(frozen=True)
class Miss:
    """An estimate that misses the contract."""

    # which, device, dtype: of the results
    which: Pass
    device: Device
    dtype: str
    excess: Excess  # where they exceed the contract by most; errors in ulp of the dtype


def misses(of: Compiled) -> Iterator[Miss]:
    """Yield the misses of a spec that promises accuracy; none of one that promises PyTorch's bits."""
    if of.declared.is_eager or of.algebra.pytorch_bits:
        return
    for (which, device, dtype), method in of.plan.methods.items():
        found = BY_BITS[ELEMENTS[dtype].bits](_Results(of, which, device, dtype, method))
        if found is not None:
            yield Miss(which, device, dtype, found)
    yield from _by_arithmetic(of)


def _by_arithmetic(of: Compiled) -> Iterator[Miss]:
    """Of float32 on the CPU: errors at the defaults of scalars, and one at others."""
    formula, device = of.declared.formula, Device.CPU
    if not formula.declared.inputs or "float32" not in of.spec.dtypes:
        return
    single, in_double = (of.in_variant(device, each) for each in (Variant.SINGLE_RESULT, Variant.DOUBLE))
    kernels = Both.of(lambda which: (single if of.facts[which].float_ok[device] else in_double)[which])
    scalars = defaults_and_others(formula)
    zeros = OtherScalars(formula, of.programs, in_double, scalars)
    has_zeros = len(formula.declared.inputs) == 1 and formula.params
    for which in Pass:
        near = zeros.excesses(which, single) if has_zeros and of.facts[which].float_ok[device] else ()
        boxes = Boxes(formula, of.programs, in_double, kernels, scalars, which)
        for found in chain(near, boxes.excesses()):
            yield Miss(which, device, "float32", found)
            if any(found.own.at[name] != value for name, value in formula.params.items()):
                break


@dataclass(frozen=True)
class _Results:
    of: Compiled  # the spec
    # which, device, dtype: whose results they are
    which: Pass
    device: Device
    dtype: str
    method: Method  # how they are obtained

    @property
    def is_double(self) -> bool:
        """True if they come from double, through a table or a fit, too."""
        last = [part for part in parts(self.method) if isinstance(part, Computed)]
        return not last or last[0] in (DOUBLE, PLAIN)

    def kernel(self, variant: Variant) -> Kernel:
        """Return a kernel of the pass on the device."""
        return self.of.kernels[self.which, self.device, variant]

    def in_16_bits(self) -> Kernel:
        """Return the kernel of 16-bit results, as the first arithmetic of their method computes it."""
        computed = next((part for part in parts(self.method) if isinstance(part, Computed)), DOUBLE)
        kernel = self.kernel(Variant.FLOAT)
        return collapsed(kernel) if computed in WITHOUT_LOW_WORDS else kernel

    def estimated(self, kernel: Kernel, within: graph.Range, scale: float) -> Estimated:
        """Return the errors of a kernel at the points of a formula, times a number."""
        params = with_uniforms(self.of.declared.formula.params, *self.of.programs)
        return lambda formula: errors(kernel, formula.sample(kernel), params, within).times(scale)

    def worst(self, formula: Formula, estimated: Estimated, allowed: Allowed) -> Excess | None:
        """Return the box of a formula in which errors exceed what is allowed by most."""
        return excess(formula, self.kernel(Variant.DOUBLE), estimated, allowed)


def _in_32_bits(results: _Results) -> Excess | None:
    """Of float32: what `measure` found in float; in double, its estimate there."""
    facts, formula = results.of.facts[results.which], results.of.declared.formula
    if facts.float_ok[results.device]:
        return facts.estimates[results.device].excess
    kernel = results.kernel(Variant.FLOAT)
    estimated = results.estimated(kernel, graph.DOUBLE, budget.IN_DOUBLE)
    return results.worst(formula, estimated, contract(kernel))


def _in_64_bits(results: _Results) -> Excess | None:
    """Of float64: the errors of ours and eager's operations in double's range."""
    kernel, formula = results.kernel(Variant.DOUBLE), results.of.declared.formula
    wide = replace(formula, within=graph.DOUBLE)
    least = budget.FLOAT_ENOUGH[results.device]

    def allowed(formula: Formula) -> Column:
        return np.maximum(least, formula.eager_at(kernel) * budget.OF_A_BOX)  # float64 is a sample, too

    return results.worst(wide, results.estimated(kernel, graph.DOUBLE, 1.0), allowed)


def _in_16_bits(results: _Results) -> Excess | None:
    """Of 16 bits: every result is the correctly rounded one or its neighbour, whatever eager's is."""
    kernel = results.in_16_bits()
    within, scale = (graph.DOUBLE, budget.IN_DOUBLE) if results.is_double else (graph.FLOAT, 1.0)
    digits, least, above = IN_16_BITS[results.dtype]

    def held(sizes: Column) -> Mask:
        found: Mask = (sizes == 0) | ((sizes >= 2.0**least) & (sizes < 2.0**above))
        return found

    def allowed(formula: Formula) -> Column:
        sample = formula.sample(kernel)
        reals = np.abs(np.array(sample.reals))
        unit = np.ldexp(NEIGHBOUR, np.maximum(np.frexp(reals)[1] - digits, least)) / graph.FLOAT.unit(reals)
        inputs = np.abs(np.array([list(point.values()) for point in sample.points]))  # or outputs
        counts = held(reals) & held(inputs).all(axis=1, keepdims=True)
        return np.where(counts, unit, np.inf)

    formula = replace(results.of.declared.formula, tried=OF_16_BITS)
    estimated = results.estimated(kernel, within, scale)(formula)
    most = allowed(formula)
    with np.errstate(invalid="ignore"):
        ratio = np.where(estimated.columns > most, estimated.columns / most, 0.0)
    point, result = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    if not ratio[point, result]:
        return None
    ulp = 2.0 ** (digits - graph.DIGITS)
    eager = formula.eager_at(kernel)[point, result]
    own = estimated.at(int(point), int(result))
    return Excess(replace(own, ulp=own.ulp * ulp), float(eager) * ulp)


BY_BITS = {16: _in_16_bits, 32: _in_32_bits, 64: _in_64_bits}
