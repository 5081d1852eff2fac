"""The kernels of a spec with rows: its programs, their phases, and a kernel for each part of a phase.

All arithmetic is in double, so that a result of at most 32 bits is rounded once.
"""

from dataclasses import dataclass, replace

from fusegen.algebra.compose import expanded
from fusegen.algebra.derive import attached
from fusegen.algebra.rows.phases import Phase, Schedule, flat, level, levels, schedule
from fusegen.algebra.rows.row_gradient import derive_rows
from fusegen.algebra.simplify import simplify
from fusegen.compiler.placed import Placed
from fusegen.compiler.stages import eager_operations, real, stable_form
from fusegen.core.folds import Level, is_fold
from fusegen.core.ir import Kernel, Math
from fusegen.core.method import Both, Pass
from fusegen.core.spec import Spec
from fusegen.core.targets import Device
from fusegen.core.term import Program, walk
from fusegen.core.timing import timed
from fusegen.errors import NoRowValues, NothingReduced
from fusegen.language.library import Library
from fusegen.lower import lower


@dataclass(frozen=True)
class PhaseKernels:
    """The functions of a phase: of an element, and of what follows once a row, if anything does."""

    phase: Phase
    elements: Kernel
    row: Kernel | None


@dataclass(frozen=True)
class CompiledRows(Placed):
    """The result of every stage, of a spec with rows.

    Attributes:
        declared: its program.
        eager: the operations that PyTorch would run.
        schedules: the phases of both passes.
        kernels: by pass and device, those of each phase.
    """

    declared: Program
    eager: Program
    schedules: Both[Schedule]
    kernels: dict[tuple[Pass, Device], tuple[PhaseKernels, ...]]

    @property
    def stored(self) -> Level:
        """The level of the results."""
        return self.schedules.forward.stored

    @property
    def outputs(self) -> tuple[int, ...]:
        """For each tensor, the result that is its gradient: each has its own, but for indices."""
        return tuple(range(len(self.schedules.backward.phases[-1].elements.results)))


def compiled_rows(spec: Spec, library: Library) -> CompiledRows:
    """Return every stage of a spec with rows, in order; nothing is written.

    Raises:
        FusegenError: a mistake in it.
    """
    name = spec.name
    declared = timed(f"{name}: compose", real, spec, library)
    check_folds(declared)
    eager = eager_operations(spec, library)
    indices = [each.name for each in spec.indices]
    forward = schedule(attached(declared), indices)
    if spec.reduction != "none" and forward.stored is Level.ELEMENT:
        raise NoRowValues(spec.span, reduction=spec.reduction)
    backward = timed(f"{name}: derive", derive_rows, declared, forward.stored)
    backward = replace(backward, results=backward.results[: len(spec.tensors) - len(spec.indices)])
    schedules = Both(simplified(spec, forward), simplified(spec, schedule(attached(backward), indices)))
    kernels = {
        (which, device): tuple(
            _kernels(f"{name}_{which.value}{k}", phase, device)
            for k, phase in enumerate(schedules[which].phases, 1)
        )
        for which in Pass
        for device in Device
    }
    return CompiledRows(spec, library, declared, eager, schedules, kernels)


def check_folds(program: Program) -> None:
    """Refuse a program that reduces what is the same for all elements of a row.

    Raises:
        NothingReduced: it does.
    """
    found = flat(program)
    of = levels(found)
    for part in (part for term in found.terms for part in walk(term)):
        if is_fold(part) and level(part.args[0], of) < Level.ELEMENT:
            raise NothingReduced(part.span, what=f"what {part.spec} reduces", of="row")


def simplified(spec: Spec, of: Schedule) -> Schedule:
    """Return phases in their stable forms and in fewer operations."""
    phases = tuple(
        replace(p, elements=_simple(spec, p.elements), row=_simple(spec, p.row)) for p in of.phases
    )
    return Schedule(of.inputs, of.params, phases, of.stored)


def _simple(spec: Spec, program: Program) -> Program:
    if not program.results:
        return program
    found, _ = stable_form(program)
    found, _ = simplify(expanded(found), spec.ranges)
    return found


def _kernels(name: str, phase: Phase, device: Device) -> PhaseKernels:
    """Return the kernels of a phase."""
    elements = _lowered(name, phase.elements, device)
    return PhaseKernels(
        phase, elements, _lowered(f"{name}_row", phase.row, device) if phase.values else None
    )


def _lowered(name: str, program: Program, device: Device) -> Kernel:
    return lower(name, program, device, Math.DOUBLE)
