"""The kernels that a module may be made of: each program is lowered once in each variant, and verified."""

from collections.abc import Mapping
from dataclasses import replace

from fusegen.core.dtypes import maths
from fusegen.core.ir import Kernel, Math
from fusegen.core.method import Both, Pass, Variant
from fusegen.core.spec import Spec
from fusegen.core.targets import Device
from fusegen.core.term import Program
from fusegen.lower import Form, lower
from fusegen.lower.laws import broken_law

Kernels = Mapping[tuple[Pass, Device, Variant], Kernel]


def candidates(
    spec: Spec,  # what they are named after
    programs: Both[Program],  # of the passes
    owners: tuple[int, ...],  # the tensors whose gradients the results of the backward pass are
    *,
    double_word: bool,  # whether functions that approximate are computed in double-word arithmetic
) -> Kernels:
    """Return the kernels of both passes: in double, and in float if a dtype is computed in it."""
    kinds = {*maths(spec.dtypes), Math.DOUBLE}
    found: dict[tuple[Pass, Device, Variant], Kernel] = {}
    own = Both((), owners)
    for which in Pass:
        name, program = f"{spec.name}_{which.value}", programs[which]
        incoming = program.inputs[0] if which is Pass.BACKWARD else None
        for device in Device:
            for kind in kinds:
                kernel = lower(name, program, device, kind, double_word, incoming)
                found[which, device, Variant(kind)] = _verified(kernel, spec, own[which])
            if Math.FLOAT in kinds:
                single_word = lower(name, program, device, Math.FLOAT, double_word, incoming, Form.VERIFIED)
                named = replace(single_word, name=f"{name}_single_word")
                found[which, device, Variant.SINGLE_WORD] = _verified(named, spec, own[which])
    return found


def in_single_words(spec: Spec, which: Pass, program: Program, like: Kernel) -> Kernel:
    """Return the kernel of a pass like another one, in single words; CPU arguments may have two."""
    name, device = f"{spec.name}_{which.value}", like.device
    if device.single_words:
        return _verified(lower(name, program, device, Math.FLOAT), spec, like.owners)
    incoming = program.inputs[0] if which is Pass.BACKWARD else None
    found = lower(name, program, device, Math.FLOAT, precise=True, incoming=incoming, form=Form.ARGUMENTS)
    return _verified(replace(found, name=f"{name}_single_result"), spec, like.owners)


def of_16_bits(
    spec: Spec,  # what it is named after
    which: Pass,  # the pass
    program: Program,  # of the pass
    like: Kernel,  # another kernel of the pass on the same device
) -> Kernel:
    """The kernel in double of a program that takes series where the formula would lose 16-bit results."""
    incoming = program.inputs[0] if which is Pass.BACKWARD else None
    name = f"{spec.name}_{which.value}_16_bits"
    found = lower(name, program, like.device, Math.DOUBLE, precise=True, incoming=incoming)
    return _verified(found, spec, like.owners)


def _verified(kernel: Kernel, spec: Spec, owners: tuple[int, ...]) -> Kernel:
    """A kernel that keeps the laws of the IR, with the tensors of it that are small, and the owners."""
    kernel = replace(kernel, small=spec.small & set(kernel.inputs), owners=owners)
    law = broken_law(kernel)
    assert law is None, f"{kernel.name}: {law}"
    return kernel
