"""The kernels of a spec with rows: its programs, their phases, and a kernel for each part of a phase.

All arithmetic is in double, so that a result of at most 32 bits is rounded once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fusegen.algebra.compose import expanded
from fusegen.algebra.derive import attached
from fusegen.algebra.rows.phases import Phase, Schedule, schedule
from fusegen.algebra.rows.row_gradient import derive_rows
from fusegen.algebra.simplify import simplify
from fusegen.compiler.placed import Placed
from fusegen.compiler.row_checks import check_reductions, check_results, result_levels
from fusegen.compiler.stages import eager_operations, real, stable_form
from fusegen.core.folds import FINDS, Level
from fusegen.core.ir import Kernel, Math
from fusegen.core.method import Both, Pass
from fusegen.core.spec import Spec
from fusegen.core.targets import Device
from fusegen.core.term import Program
from fusegen.core.timing import timed
from fusegen.errors import NoRowDtype, NoRowValues, NoValuesKept
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
    """The result of every stage, of a spec with rows."""

    declared: Program  # its program
    eager: Program  # the operations that PyTorch would run
    schedules: Both[Schedule]  # the phases of both passes
    kernels: dict[tuple[Pass, Device], tuple[PhaseKernels, ...]]  # by pass and device, those of each phase

    @property
    def stored(self) -> Level:
        """The level of the results; of elements, if those of some are."""
        return self.schedules.forward.stored

    @cached_property
    def row_results(self) -> tuple[int, ...]:
        """The places of the results that are values of rows."""
        return tuple(k for k, each in enumerate(result_levels(self.declared)) if each is Level.ROW)

    @property
    def is_wide(self) -> bool:
        """True if values of rows are in float32 where elements have 16 bits."""
        return bool(self.spec.over and self.spec.over.dtype)

    @property
    def is_mixed(self) -> bool:
        """True if some results are values of rows, and others of elements."""
        return bool(self.row_results) and self.stored is Level.ELEMENT

    def tensors(self, which: Pass) -> tuple[str, ...]:
        """Return the tensors that a kernel reads, in its order: gradients of values of rows come first."""
        inputs = self.schedules[which].inputs
        if which is Pass.FORWARD:
            return inputs
        first = [inputs[k] for k in self.row_results]
        return (*first, *(name for name in inputs if name not in first))

    @property
    def finds(self) -> bool:
        """True if the result is the place of an element in its row, which has no gradient."""
        return any(fold.name in FINDS for phase in self.schedules.forward.phases for fold in phase.folds)

    @property
    def in_parts(self) -> bool:
        """True if rows are parts of whole tensors."""
        return bool(self.spec.over and self.spec.over.is_part)

    @property
    def scans(self) -> bool:
        """True if the kernels are those of scans, which find elements, too."""
        return self.finds or bool(self.schedules.forward.scanned)

    found_forward = 0  # the loops of the gradient whose values the forward pass has stored

    @property
    def reduces(self) -> bool:
        """True if it has folds; without, rows are the elements of the last dimension."""
        return len(self.schedules.forward.phases) > 1

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
    check_reductions(spec, declared)
    eager = eager_operations(spec, library)
    indices = [each.name for each in spec.indices]
    stored = check_results(spec, declared)
    forward = schedule(*_of_rows_last(attached(declared), indices, stored))
    if spec.reduction != "none" and forward.stored is Level.ELEMENT:
        raise NoRowValues(spec.at("reduction"), reduction=spec.reduction)
    if spec.over and spec.over.keeps and Level.ROW not in stored:
        raise NoValuesKept(spec.at("keepdim"), found="the formula has a value for each element")
    backward = timed(f"{name}: derive", derive_rows, declared, stored, spec.results)
    backward = replace(backward, results=backward.results[: len(spec.tensors) - len(spec.indices)])
    made = _scheduled(attached(backward), indices, _loaded(spec, backward, stored))
    schedules = Both(simplified(spec, forward), simplified(spec, made))
    found = CompiledRows(spec, library, declared, eager, schedules, phase_kernels(name, schedules))
    _check_row_dtype(found)
    return found


def phase_kernels(
    name: str, schedules: Both[Schedule]
) -> dict[tuple[Pass, Device], tuple[PhaseKernels, ...]]:
    """Return the kernels of the phases of both passes, by pass and device."""
    return {
        (which, device): tuple(
            _kernels(f"{name}_{which.value}{k}", phase, device)
            for k, phase in enumerate(schedules[which].phases, not schedules[which].loads)
        )
        for which in Pass
        for device in Device
    }


def _check_row_dtype(of: CompiledRows) -> None:
    """Refuse a dtype of values of rows where there are none, or where kernels have none of their own.

    Raises:
        NoRowDtype: it is asked for.
    """
    problems = {
        "the formula has a value for each element": not of.row_results,
        "the place of an element is an int64": of.finds,
        "the gradient of max and min reads places of elements": of.schedules.backward.is_placed,
    }
    for found in (problem for problem, holds in problems.items() if holds and of.is_wide):
        raise NoRowDtype(of.spec.at("row_dtype"), found=found)


def _loaded(spec: Spec, backward: Program, stored: Sequence[Level]) -> tuple[str, ...]:
    """Return the incoming gradients that the first phase reads: of values of rows that are not alone.

    It reads those in another dtype than elements, too.
    """
    of_rows = [name for name, own in zip(backward.inputs, stored, strict=False) if own is Level.ROW]
    is_alone = len(of_rows) == len(stored) and not (spec.over and spec.over.dtype)
    return () if is_alone else tuple(of_rows)


def _scheduled(program: Program, indices: Sequence[str], loaded: tuple[str, ...]) -> Schedule:
    """Return the phases of a gradient, of which the first one reads some incoming gradients."""
    made = schedule(program, indices)
    if made.is_placed or not loaded:
        return made
    made = schedule(program, indices, loaded)
    first, *others = made.phases
    return replace(made, phases=(replace(first, folded=loaded), *others))


def _of_rows_last(
    program: Program, indices: Sequence[str], stored: Sequence[Level]
) -> tuple[Program, Sequence[str], Sequence[str], int]:
    """Return what `schedule` takes of a program whose results of rows stand behind those of elements."""
    pairs = [*zip(program.results, stored, strict=True)]
    of_rows = [result for result, own in pairs if own is Level.ROW]
    others = [result for result, own in pairs if own is not Level.ROW]
    program = replace(program, results=(*others, *of_rows))
    return program, indices, (), len(of_rows) if others else 0


def simplified(spec: Spec, of: Schedule) -> Schedule:
    """Return phases in their stable forms and in fewer operations."""
    phases = tuple(
        replace(p, elements=_simple(spec, p.elements), row=_simple(spec, p.row)) for p in of.phases
    )
    return replace(of, phases=phases)


def _simple(spec: Spec, program: Program) -> Program:
    if not program.results:
        return program
    found, _ = stable_form(program)
    found, _ = simplify(expanded(found), spec.ranges)
    return found


def _kernels(name: str, phase: Phase, device: Device) -> PhaseKernels:
    elements = _lowered(name, phase.elements, device)
    return PhaseKernels(
        phase, elements, _lowered(f"{name}_row", phase.row, device) if phase.values else None
    )


def _lowered(name: str, program: Program, device: Device) -> Kernel:
    return lower(name, program, device, Math.DOUBLE)
