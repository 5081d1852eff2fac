"""From a compiled spec to the text of its module: the kernels that the plan takes, printed and rendered."""

from __future__ import annotations

from collections.abc import Iterable

from fusegen.algebra.derive import derive_eager, detached
from fusegen.algebra.hoist import bounds
from fusegen.algebra.simplify.constants import constants_folded
from fusegen.codegen import render
from fusegen.codegen.emit import curve_kernels
from fusegen.codegen.emit.counts import counts
from fusegen.codegen.emit.kernel_text import kernel_texts
from fusegen.codegen.emit.needed_kernels import Emitted, emitted
from fusegen.codegen.printers.autocast import autocasts
from fusegen.codegen.printers.cpp import CppPrinter, uniform
from fusegen.codegen.printers.families import headers
from fusegen.codegen.printers.function_text import definitions
from fusegen.codegen.printers.literals import literal
from fusegen.codegen.printers.notation import notation
from fusegen.codegen.printers.pytorch import statements
from fusegen.codegen.render import Binding
from fusegen.codegen.render.digests import digests
from fusegen.compiler.pipeline import Compiled
from fusegen.core import budget
from fusegen.core.dtypes import ELEMENTS
from fusegen.core.ir import Kernel, Math, operations
from fusegen.core.launch import Table, special_rows
from fusegen.core.manifest import Kernels
from fusegen.core.method import Arithmetic, Pass
from fusegen.core.ops import ROUNDED
from fusegen.core.targets import Device
from fusegen.core.term import names
from fusegen.lower import uniforms
from fusegen.schedule.forms import Form, Part


def module(of: Compiled, binding: Binding, launches: Table) -> str:
    """Return the text of a module.

    Args:
        of: a spec after all stages.
        binding: how its kernels are reached from Python.
        launches: the launch table.
    """
    return rendered(of, binding, launches)[0]


def rendered(of: Compiled, binding: Binding, launches: Table) -> tuple[str, Kernels]:
    """Return the text of a module, and the digests of its kernels; the arguments are those of `module`."""
    printed = texts(of, binding, launches)
    return render.module(of.spec, printed, (of.place, of.origin)), digests(of.spec, printed)


def sources(of: Compiled, binding: Binding, launches: Table) -> dict[str, str]:
    """Return the C++ of a module, by device."""
    return render.sources(of.spec, texts(of, binding, launches))


def texts(of: Compiled, binding: Binding, launches: Table) -> render.Texts:
    """Return the printed texts of a module."""
    kernels = {device: {which: emitted(of, which, device) for which in Pass} for device in Device}
    called = {device: tuple(_every(several.values())) for device, several in kernels.items()}
    for device in Device:
        called[device] += curve_kernels.kernels(of) if device.like is Device.CUDA else ()
    read = {name for kernel in called[Device.CUDA] for name in kernel.params}
    host_scalar = {let.name: let for program in of.programs for let in uniforms(program)}
    first, saved = of.algebra.derivations.backward.first, of.algebra.derivations.backward.first.inputs[1:]
    from_output = saved != of.declared.composed.inputs
    has_eager_gradient = from_output or of.algebra.pytorch_bits
    by_curves, every_curve = curve_kernels.curves_texts(of)
    written = kernel_texts(of, launches, by_curves)
    return render.Texts(
        notation=notation(of.spec),
        counts=counts(kernels[Device.CUDA]),
        forward=written[Pass.FORWARD],
        backward=written[Pass.BACKWARD],
        curves=every_curve,
        forms=tuple(
            _form(of, form, launches)
            for form in of.forms
            if binding is Binding.STABLE or not form.needs_stable_abi
        ),
        headers={device: headers(several) for device, several in called.items()},
        scalars=tuple(name for name in (*of.declared.composed.params, *host_scalar) if name in read),
        bounds=bounds(of.declared.composed),
        declared=tuple(literal(param.default, Math.DOUBLE) for param in of.spec.scalars),
        uniforms=tuple(uniform(let) for let in host_scalar.values()),
        plain_double_bits=plain_double_bits(of),
        rounds=any(ROUNDED in operations(kernel) for kernel in called[Device.CUDA]),
        eager=statements(constants_folded(of.declared.eager)),
        eager_gradient=statements(first, several=True) if has_eager_gradient else (),
        from_output=from_output,
        unread=_unread(of),
        detached=_detached(of),
        gradients=of.outputs if len({*of.outputs}) < len(of.outputs) else (),
        autocast=autocasts(of.declared.eager),
    )


def _unread(of: Compiled) -> tuple[str, ...]:
    """Return the inputs that the gradient does not read, though it takes them.

    Nor does that of eager's operations, which a second derivative runs: `x / b * b` reads b there.
    """
    programs = of.programs.backward, derive_eager(of.declared.eager)
    read = {name for program in programs for term in program.terms for name in names(term)}
    _, *taken = of.programs.backward.inputs
    return tuple(name for name in taken if name not in read)


def _detached(of: Compiled) -> tuple[str, ...]:
    """Return the inputs that have no gradient in eager; masks, which never have one, aside."""
    return tuple(name for name in detached(of.declared.eager) if name not in of.spec.masks)


def plain_double_bits(of: Compiled) -> str:
    """Return the number of right bits in single-word double, if a kernel on CUDA takes it."""
    taken = Arithmetic.PLAIN_DOUBLE
    passes = [which for which in Pass if taken in of.plan.arithmetics(which, Device.CUDA)]
    errors = [of.facts[which].estimates[Device.CUDA].double or 0.0 for which in passes]
    return ("39" if max(errors) <= budget.BITS_39_ENOUGH else "44") if passes else ""


def _every(several: Iterable[Emitted]) -> tuple[Kernel, ...]:
    """Return the kernels of both passes, those with names of their own last."""
    kept = tuple(several)
    return (
        *(kernel for each in kept for kernel in each.kernels),
        *(kernel for each in kept for kernel in each.named.values()),
    )


def _form(of: Compiled, form: Form, launches: Table) -> render.FormText:
    """Return the text of a form."""
    bits = sorted({ELEMENTS[dtype].bits for dtype in of.spec.dtypes} - {64})
    name = f"{of.spec.name}_{Pass.FORWARD.value}"
    return render.FormText(
        form,
        form.sentence(of.spec),
        tuple(_part(part) for part in form.parts(of.planned)),
        {each: special_rows(launches, name, form.rows, each) for each in bits} if form.rows else {},
    )


def _part(of: Part) -> render.PartText:
    """Return the text of a kernel that a form has of its own."""
    element = CppPrinter(of.kernels[0]).element()
    return render.PartText(
        of.functor, of.note, len(of.kernels[0].inputs), element, definitions(of.kernels, ())
    )
