"""The text of one kernel: what the printers write of it, and its methods as the templates spell them.

The templates know a method by `Halves`, `Singles` and a few flags. They are derived here from the plan, and
nowhere else.
"""

from __future__ import annotations

from textwrap import wrap

from fusegen.cost import Cost, cost_of
from fusegen.elements import ELEMENTS
from fusegen.emit.kernels import Emitted, emitted
from fusegen.emit.remarks import remarks
from fusegen.ir import Device, Kernel, Math
from fusegen.launch import Table as Launches
from fusegen.launch import broadcast_rows, class_of
from fusegen.lower import notes
from fusegen.method import (
    DOUBLE,
    PLAIN,
    Arithmetic,
    AtDefaults,
    Formula,
    Grid,
    Pass,
    Piecewise,
    Table,
    Variant,
    Verified,
    arithmetics,
)
from fusegen.pipeline import Compiled
from fusegen.plan import Plan
from fusegen.printers import dump
from fusegen.printers.cpp import CppPrinter, definitions
from fusegen.printers.notation import notation
from fusegen.render import Halves, KernelText, Share, Singles

WIDTH = 120  # of a line
COMMENT = WIDTH - len("// ")
FUNCTORS = {Pass.FORWARD: "Forward", Pass.BACKWARD: "Backward"}


def halves(plan: Plan, which: Pass) -> Halves:
    """The spelling of the method of 16-bit results on CUDA."""
    match plan.in_bits(which, Device.CUDA, 16):
        case Verified():
            return Halves.TESTED
        case AtDefaults(Table(), Verified()):
            return Halves.DECLARED
        case Table() | AtDefaults(Table()):
            return Halves.LOOKED_UP
        case Formula() as method if method in (DOUBLE, PLAIN):
            return Halves.DOUBLE
    return Halves.COMPUTED


def singles(plan: Plan, which: Pass, device: Device) -> Singles:
    """The spelling of the method of float32 results; of 16-bit ones, if the spec has no others."""
    if plan.falls_to_double(which, device):
        return Singles.DOUBLE
    match plan.in_bits(which, device, 32) or plan.in_bits(which, device, 16):
        case Piecewise(Grid.UNIFORM):
            return Singles.PIECES
        case Piecewise() | Verified(Piecewise()):
            return Singles.CUBICS
        case AtDefaults(Piecewise()):
            return Singles.DECLARED
    return Singles.COMPUTED


def verifies_on_cpu(plan: Plan, which: Pass) -> bool:
    """Whether 16-bit results are verified on the CPU, or would be."""
    verified = isinstance(plan.in_bits(which, Device.CPU, 16), Verified)
    return verified or singles(plan, which, Device.CPU) is Singles.CUBICS


def uses_plain_double(plan: Plan, which: Pass) -> bool:
    """Whether a kernel on CUDA takes single-word double."""
    methods = plan.of(which, Device.CUDA).values()
    return any(Arithmetic.PLAIN_DOUBLE in arithmetics(method) for method in methods)


def kernel_text(of: Compiled, which: Pass, launches: Launches) -> KernelText:
    """The text of one kernel."""
    derivation = of.algebra.derivations[which]
    kernels = {device: emitted(of, which, device) for device in Device}
    name, inputs = f"{of.spec.name}_{which.value}", derivation.program.inputs
    formula = notation(of.spec) if which is Pass.FORWARD else _gradient_of(of)
    rewrites = {Device.CUDA: tuple(map(dump.rewrite, derivation.rewrites)), Device.CPU: ()}  # said once
    of_cuda = singles(of.plan, which, Device.CUDA)
    return KernelText(
        name=name,
        functor=FUNCTORS[which],
        inputs=inputs,
        outputs=("y",) if which is Pass.FORWARD else of.declared.composed.inputs,
        notes={
            device: (
                formula,
                *rewrites[device],
                *notes(derivation.program, device),
                *_commented(of, which, device),
            )
            for device in Device
        },
        definitions={device: _definitions(of, which, device, own) for device, own in kernels.items()},
        elements={device: CppPrinter(own.kernels[0]).element() for device, own in kernels.items()},
        short={
            device: CppPrinter(own.short).element() if own.short else "" for device, own in kernels.items()
        },
        shares=shares(of, which, launches),
        halves=halves(of.plan, which),
        settled=verifies_on_cpu(of.plan, which),
        singles={device: singles(of.plan, which, device) for device in Device},
        centres=of.facts[which].grid if of_cuda is Singles.PIECES else None,
        ample=uses_plain_double(of.plan, which),
    )


def element_costs(of: Compiled, which: Pass) -> dict[int, Cost]:
    """What an element of a CUDA kernel costs, by its width in bits."""
    kernels = _candidates(of, which)
    methods = {ELEMENTS[dtype].bits: method for dtype, method in of.plan.of(which, Device.CUDA).items()}
    return {bits: cost_of(method, bits, kernels) for bits, method in sorted(methods.items())}


def shares(of: Compiled, which: Pass, launches: Launches) -> tuple[Share, ...]:
    """How dense tensors are shared out among a CUDA kernel's threads, for each width of elements."""
    name, found = f"{of.spec.name}_{which.value}", []
    for bits, cost in element_costs(of, which).items():
        rows = class_of(cost.launch_class, len(of.programs[which].inputs))
        own = launches.chosen(name, rows, bits)
        several = broadcast_rows(launches, name, bits) if len(of.spec.tensors) > 1 else {}
        found.append(Share(bits, cost.instructions, cost.launch_class.value, rows, own, several))
    return tuple(found)


def _candidates(of: Compiled, which: Pass) -> dict[Variant, Kernel]:
    """The kernels of a pass on CUDA."""
    return {
        v: kernel for (p, device, v), kernel in of.kernels.items() if (p, device) == (which, Device.CUDA)
    }


def _definitions(of: Compiled, which: Pass, device: Device, kernels: Emitted) -> tuple[str, ...]:
    """The functions of a device's kernels; on CUDA those of other arithmetics, too, print for any type."""
    fast = any(Arithmetic.FAST_FLOAT in arithmetics(method) for method in of.plan.methods.values())
    opens = {Math.FLOAT: fast, Math.DOUBLE: uses_plain_double(of.plan, which)}
    open_ = [kind for kind in Math if opens[kind]] if device is Device.CUDA else []
    short = definitions((kernels.short,), open_) if kernels.short else ()
    return (*definitions(kernels.kernels, open_), *short)


def _commented(of: Compiled, which: Pass, device: Device) -> tuple[str, ...]:
    """The remarks on a kernel as lines of a comment."""
    return tuple(line for remark in remarks(of, which, device) for line in wrap(remark, COMMENT))


def _gradient_of(of: Compiled) -> str:
    """The comment above a gradient."""
    inputs = of.declared.composed.inputs
    grad, *saved = of.algebra.derivations.backward.first.inputs
    each = "the gradients of" if len(inputs) > 1 else "the gradient of"
    return f"From {grad}, the gradient of y, and {' and '.join(saved)}: {each} {' and '.join(inputs)}."
