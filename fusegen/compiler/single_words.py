"""The form of a pass of several tensors in float: double-word where single words would lose digits.

Double-word arithmetic makes a chain accurate to a few ulp. On CUDA it hides behind the memory where a
function is alone; on the CPU it takes two to three times as long as single words. In a chain with operands
eager rounds after every step. There single words are enough, if their estimated error is a few ulp
everywhere, or at most eager's at the same inputs and on the whole; of one tensor at the zeros that it has
with other scalars than the defaults, too.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from fusegen.compiler.curves import savings
from fusegen.compiler.estimates import Formula, with_uniforms
from fusegen.compiler.halves import HALVES, Halves, Several, corrected
from fusegen.compiler.local_excess import as_eager, excess, tolerated
from fusegen.compiler.zeros_at_scalars import OtherScalars, others_as_floats
from fusegen.core import budget
from fusegen.core.candidates import Candidate, cheapest
from fusegen.core.dtypes import ELEMENTS, maths
from fusegen.core.facts import NONE_MISSED, Missed
from fusegen.core.interval import Point
from fusegen.core.ir import Body, Kernel, Math, Word, calls
from fusegen.core.method import Both, Pass, Variant
from fusegen.core.ops import ROWS
from fusegen.core.spec import Spec
from fusegen.core.targets import Device
from fusegen.core.term import Program
from fusegen.lower.collapsed import collapsed
from fusegen.lower.variants import Kernels, in_single_words, of_16_bits
from fusegen.numerics.roundoff import Errors, errors
from fusegen.schedule import cost

# operations in double-word arithmetic of a function of one tensor on the CPU: with 7 and 17 fusegen's own
# are as fast as eager, with 11 and 21 log(cosh(x)) ran at 0.8 and 0.5 of eager's speed
MOST_IN_TWO_WORDS = {Pass.FORWARD: 8, Pass.BACKWARD: 18}


def in_fewer_words(spec: Spec, programs: Both[Program], kernels: Kernels, formula: Formula) -> Kernels:
    """Return double-word kernels, in single words where these take less time and are accurate enough."""
    found = dict(kernels)
    if Math.FLOAT not in maths(spec.dtypes):
        return kernels
    for which, device in ((which, device) for which in Pass for device in Device):
        before = kernels[which, device, Variant.FLOAT]
        is_long = not device.single_words and in_two_words(before) > MOST_IN_TWO_WORDS[which]
        if len(spec.tensors) < 2 and not is_long:
            continue
        single = in_single_words(spec, which, programs[which], before)
        if len(spec.tensors) < 2 and _errs_elsewhere(single, which, programs, kernels, formula):
            continue
        enough = partial(_is_enough, single, which, spec, programs, formula)
        form, time = FORMS[device.like]
        tried = (Candidate(before, time(before)), Candidate(single, time(single), enough))
        if cheapest(tried) is single:
            found[which, device, form] = single
    return found


def _errs_elsewhere(
    single: Kernel, which: Pass, programs: Both[Program], kernels: Kernels, formula: Formula
) -> bool:
    """Return True if single words err by more than eager next to a zero, for scalars that are floats."""
    in_double = Both.of(lambda each: kernels[each, Device.CPU, Variant.DOUBLE])
    tried = Both.of(lambda each: single if each is which else kernels[each, Device.CPU, Variant.FLOAT])
    found = OtherScalars(formula, programs, in_double, others_as_floats(formula))
    return next(found.excesses(which, tried, of_eager=1.0), None) is not None


def in_series(
    spec: Spec, programs: Both[Program], kernels: Kernels, formula: Formula
) -> tuple[Kernels, Both[Missed]]:
    """Return the kernels, some by series where double would lose 16-bit results, and what is missed."""
    halves = tuple(dtype for dtype in spec.dtypes if dtype in HALVES)
    found, params = dict(kernels), with_uniforms(formula.params, *programs)

    def missed(which: Pass) -> Missed:
        in_double = kernels[which, Device.CPU, Variant.DOUBLE]
        if not halves or not formula.declared.inputs:
            return NONE_MISSED
        if len(formula.declared.inputs) > 1:
            several = Several(formula, which, halves, params)
            return _of_several(several, {d: kernels[which, d, Variant.FLOAT] for d in Device}, in_double)
        if not cost.is_unary(in_double, which.arity):
            return NONE_MISSED
        promise = Halves(formula, which, halves, params)
        by_float = {d: len(promise.misses(kernels[which, d, Variant.FLOAT])) for d in Device}
        lost = tuple(promise.misses(in_double)) if any(by_float.values()) else ()
        series = promise.series(lost) if lost and not spec.scalars else None
        if series is None:
            return Missed(by_float, points(promise, lost))
        program = corrected(programs[which], promise.name, series)
        own = {d: of_16_bits(spec, which, program, kernels[which, d, Variant.DOUBLE]) for d in Device}
        left = tuple(promise.misses(own[Device.CPU]))
        if len(left) >= len(lost):
            return Missed(by_float, points(promise, lost))
        found.update({(which, d, Variant.SERIES): kernel for d, kernel in own.items()})
        return Missed(by_float, points(promise, left), series=True)

    return found, Both.of(missed)


def _of_several(several: Several, of_float: Mapping[Device, Kernel], in_double: Kernel) -> Missed:
    """Count what float misses of several tensors, and the fast type on CUDA, where double misses less."""
    counts = {device: len(several.misses(kernel)) for device, kernel in of_float.items()}
    more = max(counts.values()) > (len(several.misses(in_double)) if any(counts.values()) else 0)
    by_fast = len(several.misses(collapsed(of_float[Device.CUDA]))) - counts[Device.CUDA]
    left = several.left(in_double if more else of_float[Device.CPU])
    return Missed(counts if more else NONE_MISSED.by_float, left, by_fast=max(by_fast, 0))


def points(promise: Halves, numbers: Sequence[float]) -> tuple[Point, ...]:
    """Return numbers as points of the one input."""
    return tuple({promise.name: x} for x in numbers)


def in_two_words(kernel: Kernel) -> int:
    """The operations of a kernel in double-word arithmetic, those that round to a single word included."""
    return sum(
        call.word is Word.DOUBLE or (call.body is None and Body.SINGLE_RESULT in ROWS[call.op].bodies)
        for call in calls(kernel)
    )


# what a kernel in single words stands for (all results in float, or those of float32), and what takes time
FORMS: Mapping[Device, tuple[Variant, Callable[[Kernel], int]]] = {
    Device.CUDA: (Variant.FLOAT, savings.exposed),
    Device.CPU: (Variant.SINGLE_RESULT, in_two_words),
}


def _is_enough(kernel: Kernel, which: Pass, spec: Spec, programs: Both[Program], formula: Formula) -> bool:
    """True if single words keep the contract; on the CPU 16-bit results have a kernel of their own."""
    params = with_uniforms(formula.params, *programs)

    def estimated(of: Formula) -> Errors:
        return errors(kernel, of.sample(kernel), params)

    largest = next(estimated(formula).descending()).ulp
    has_16_bits = kernel.device.single_words and any(ELEMENTS[dtype].bits == 16 for dtype in spec.dtypes)
    if not math.isfinite(largest) or (has_16_bits and largest > budget.FLOAT_ENOUGH_IN_16_BITS):
        return False
    if budget.FLOAT_ENOUGH[kernel.device.like] < largest > formula.enough(kernel.device, which):
        return False
    twice = kernel.device.single_words or spec.chain  # in one formula eager's estimate exceeds its error
    allowed = tolerated(kernel) if twice else as_eager(kernel)
    return excess(formula, kernel, estimated, allowed) is None
