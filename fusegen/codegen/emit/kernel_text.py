"""The text of one kernel: what the printers write of its functions, launches and methods."""

from __future__ import annotations

from collections.abc import Mapping

from fusegen.algebra.equal_gradients import owners
from fusegen.codegen.emit.comments import Comments, comments
from fusegen.codegen.emit.curve_kernels import taken
from fusegen.codegen.emit.needed_kernels import Emitted, emitted
from fusegen.codegen.printers.cpp import CppPrinter
from fusegen.codegen.printers.function_text import Functions, definitions, functions
from fusegen.codegen.printers.methods import method_types
from fusegen.codegen.render import CurvesText, KernelText, LaunchPlan
from fusegen.compiler.pipeline import Compiled
from fusegen.core.dtypes import ELEMENTS
from fusegen.core.ir import Kernel, Math
from fusegen.core.launch import BROADCAST, class_of, shipped, special_rows
from fusegen.core.launch import Launches as Rows
from fusegen.core.launch import Table as Launches
from fusegen.core.method import (
    Arithmetic,
    Pass,
    Variant,
)
from fusegen.core.targets import Device
from fusegen.schedule.cost import Cost, cost_of

IF_FLOAT = "sizeof(M) == 4"
CONDITIONS = {
    Variant.SINGLE_WORD: f"sizeof(T) == 2 && {IF_FLOAT}",
    Variant.SINGLE_RESULT: f"sizeof(T) == 4 && {IF_FLOAT}",
    Variant.SERIES: "sizeof(T) == 2 && sizeof(M) == 8",
}
FUNCTORS = {Pass.FORWARD: "Forward", Pass.BACKWARD: "Backward"}


def kernel_texts(
    of: Compiled, launches: Launches, by_curves: Mapping[Pass, CurvesText]
) -> dict[Pass, KernelText]:
    """Return the text of the kernels of both passes.

    Args:
        of: the spec.
        launches: the launch table.
        by_curves: the texts of the passes by curves.
    """
    written = {which: _written(of, which) for which in Pass}
    notes = comments(of, written)
    parts = {which: (written[which], notes[which], by_curves.get(which)) for which in Pass}
    return {which: _kernel_text(of, which, launches, parts[which]) for which in Pass}


def _written(of: Compiled, which: Pass) -> Functions:
    """Return the functions of an element."""
    kernels = {device: emitted(of, which, device).kernels for device in Device}
    return functions(kernels, _opens(of, which))


def _kernel_text(
    of: Compiled, which: Pass, launches: Launches, parts: tuple[Functions, Comments, CurvesText | None]
) -> KernelText:
    """Return the text of one kernel, of its functions, comments and curves."""
    written, above, by_curves = parts
    kernels = {device: emitted(of, which, device) for device in Device}
    name, inputs = f"{of.spec.name}_{which.value}", of.algebra.derivations[which].program.inputs
    of_curves = {Device.CUDA: (by_curves.definition,) if by_curves else (), Device.CPU: ()}
    return KernelText(
        name=name,
        functor=FUNCTORS[which],
        inputs=inputs,
        outputs=("y",) if which is Pass.FORWARD else _gradients(of),
        notes=above.functions,
        remarks=above.kernels,
        shared=written.shared,
        definitions={
            d: (*written.own[d], *_named(of, which, own), *of_curves[d.like]) for d, own in kernels.items()
        },
        elements={device: CppPrinter(own.kernels[0]).element() for device, own in kernels.items()},
        others={device: _others(own, written.float_call[device]) for device, own in kernels.items()},
        launch_plans=launch_plans(of, which, launches),
        methods={device: method_types(of.plan.of(which, device), device) for device in Device},
        grid=of.facts[which].grid,
        curves=by_curves,
    )


def _gradients(of: Compiled) -> tuple[str, ...]:
    """Return the tensors whose gradients are stored, of equal ones the first."""
    return tuple(of.declared.composed.inputs[k] for k in owners(of.outputs))


def element_costs(of: Compiled, which: Pass) -> dict[int, Cost]:
    """Return the cost of an element of a CUDA kernel, by its width in bits."""
    kernels, by_curves = _candidates(of, which), taken(of, which)
    methods = {ELEMENTS[dtype].bits: method for dtype, method in of.plan.of(which, Device.CUDA).items()}
    kernel = by_curves.kernel if by_curves else None
    return {bits: cost_of(method, bits, kernels, kernel) for bits, method in sorted(methods.items())}


def launch_plans(of: Compiled, which: Pass, launches: Launches) -> tuple[LaunchPlan, ...]:
    """Return the launch plans of a CUDA kernel for dense tensors, one for each width of elements."""
    name, found = f"{of.spec.name}_{which.value}", []
    for bits, cost in element_costs(of, which).items():
        rows = class_of(cost.launch_class, len(of.programs[which].inputs))
        own = launches.chosen(name, rows, bits)
        several = _own_broadcast(launches, name, bits) if len(of.spec.tensors) > 1 else {}
        found.append(LaunchPlan(bits, cost.instructions, cost.launch_class.value, rows, own, several))
    return tuple(found)


def _own_broadcast(launches: Launches, kernel: str, bits: int) -> dict[int, Rows]:
    """The rows for tensors that are not all dense in one layout; none where they are the runtime's."""
    rows = special_rows(launches, kernel, BROADCAST, bits)
    return {} if rows == special_rows(shipped(), kernel, BROADCAST, bits) else rows


def _candidates(of: Compiled, which: Pass) -> dict[Variant, Kernel]:
    """Return the kernels of a pass on CUDA."""
    return {v: of.kernels[which, Device.CUDA, v] for v in Variant if (which, Device.CUDA, v) in of.kernels}


def _opens(of: Compiled, which: Pass) -> list[Math]:
    """Return the math types that stand for others, too, on CUDA."""
    fast = any(Arithmetic.FAST_FLOAT in of.plan.arithmetics(each, Device.CUDA) for each in Pass)
    plain = Arithmetic.PLAIN_DOUBLE in of.plan.arithmetics(which, Device.CUDA)
    opens = {Math.FLOAT: fast, Math.DOUBLE: plain}
    return [kind for kind in Math if opens[kind]]


def _named(of: Compiled, which: Pass, kernels: Emitted) -> tuple[str, ...]:
    """Return the functions with names of their own."""
    return tuple(
        text
        for own in kernels.named.values()
        for text in definitions((own,), _opens(of, which) if own.device.fast_types else ())
    )


def _others(kernels: Emitted, float_call: str) -> dict[str, str]:
    """Return the statements that call functions of other names, by the condition under which they do."""
    named = {CONDITIONS[variant]: CppPrinter(own).element() for variant, own in kernels.named.items()}
    return named | ({IF_FLOAT: float_call} if float_call else {})
