"""The form of a pass of several tensors on CUDA: double-word where single words would lose digits.

Double-word arguments make a chain accurate to a few ulp, and hide behind the memory where a function is
alone. In a chain with operands they may take longer than a copy, while eager rounds after every step. There
single words are enough, if their estimated error is a few ulp or at most eager's.
"""

from __future__ import annotations

import math

from fusegen import budget, cost
from fusegen.candidates import Kernels, in_single_words
from fusegen.elements import ELEMENTS, maths
from fusegen.expected import Formula, with_uniforms
from fusegen.ir import Device, Kernel, Math
from fusegen.method import Arithmetic, Both, Pass, Variant
from fusegen.roundoff import roundoff
from fusegen.spec import Spec
from fusegen.term import Program

SIZE = 4  # bytes of a float


def in_fewer_words(spec: Spec, programs: Both[Program], kernels: Kernels, formula: Formula) -> Kernels:
    """The kernels, in single words on CUDA where these take less time and are accurate enough.

    Args:
        spec: with its dtypes and tensors.
        programs: of the passes.
        kernels: of the programs, in double-word arithmetic.
        formula: whose errors they are estimated against.
    """
    found = dict(kernels)
    if len(spec.tensors) < 2 or Math.FLOAT not in maths(spec.dtypes):
        return kernels
    for which in Pass:
        before = kernels[which, Device.CUDA, Variant.FLOAT]
        if cost.slots(before, Arithmetic.FLOAT) <= cost.issued(before, SIZE):
            continue
        single = in_single_words(spec, which, programs[which])
        if _saves(single, before) and _is_enough(single, which, spec, programs, formula):
            found[which, Device.CUDA, Variant.FLOAT] = single
    return found


def _saves(single: Kernel, before: Kernel) -> bool:
    """Whether the kernel in single words issues fewer instructions."""
    return cost.slots(single, Arithmetic.FLOAT) < cost.slots(before, Arithmetic.FLOAT)


def _is_enough(kernel: Kernel, which: Pass, spec: Spec, programs: Both[Program], formula: Formula) -> bool:
    """Whether single words keep the contract in every dtype of the spec."""
    params = with_uniforms(formula.params, *programs)
    error = roundoff(kernel, formula.sample(kernel), params).ulp
    has_16_bits = any(ELEMENTS[dtype].bits == 16 for dtype in spec.dtypes)
    if not math.isfinite(error) or (has_16_bits and error > budget.FLOAT_ENOUGH_IN_16_BITS):
        return False
    enough = budget.FLOAT_ENOUGH[Device.CUDA]
    return error <= enough or error <= formula.enough(Device.CUDA, which)
