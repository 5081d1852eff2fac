"""The kernels of a spec with rows: its programs, their phases, and a kernel for each part of a phase.

All arithmetic is in double, so that a result of at most 32 bits is rounded once.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from fusegen.algebra.compose import expanded
from fusegen.algebra.derive import attached
from fusegen.algebra.rows.flat import flat, level, levels
from fusegen.algebra.rows.phases import Phase, Schedule, schedule
from fusegen.algebra.rows.row_gradient import derive_rows
from fusegen.algebra.simplify import simplify
from fusegen.compiler.placed import Placed
from fusegen.compiler.stages import eager_operations, real, stable_form
from fusegen.core.folds import FINDS, FIRST, Level, is_fold, makes_a_loop
from fusegen.core.ir import Kernel, Math
from fusegen.core.method import Both, Pass
from fusegen.core.row_dimensions import Over
from fusegen.core.scans import is_scan
from fusegen.core.spec import Spec
from fusegen.core.targets import Device
from fusegen.core.term import Name, Program, walk
from fusegen.core.timing import timed
from fusegen.errors import (
    NoRowValues,
    NothingReduced,
    NotTheResult,
    NotWithResults,
    NotWithRows,
    NoValuesKept,
    OfTwoShapes,
    OneDimension,
    OneScan,
)
from fusegen.language.library import Library
from fusegen.lower import lower

IN_TWO = "compute them in two specs"
SHAPES = {Level.ELEMENT: "of the tensors'", Level.ROW: "one value a row", Level.CALL: "one number"}


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
        """The level of the results."""
        return self.schedules.forward.stored

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
    forward = schedule(attached(declared), indices)
    if spec.reduction != "none" and forward.stored is Level.ELEMENT:
        raise NoRowValues(spec.span, reduction=spec.reduction)
    if spec.over and spec.over.keeps and forward.stored is Level.ELEMENT:
        raise NoValuesKept(spec.span, found="the formula has a value for each element")
    check_shapes(spec, declared)
    backward = timed(f"{name}: derive", derive_rows, declared, forward.stored, spec.results)
    backward = replace(backward, results=backward.results[: len(spec.tensors) - len(spec.indices)])
    schedules = Both(simplified(spec, forward), simplified(spec, schedule(attached(backward), indices)))
    return CompiledRows(spec, library, declared, eager, schedules, phase_kernels(name, schedules))


def phase_kernels(
    name: str, schedules: Both[Schedule]
) -> dict[tuple[Pass, Device], tuple[PhaseKernels, ...]]:
    """Return the kernels of the phases of both passes, by pass and device."""
    return {
        (which, device): tuple(
            _kernels(f"{name}_{which.value}{k}", phase, device)
            for k, phase in enumerate(schedules[which].phases, 1)
        )
        for which in Pass
        for device in Device
    }


def check_reductions(
    spec: Spec,  # of the program
    program: Program,  # what it declares
    of_rows: Collection[str] = (),  # the inputs of which a row has one value
) -> None:
    """Refuse what no kernel of rows or channels reduces, scans or finds; see the two below."""
    check_folds(program, of_rows)
    found = flat(program, dict.fromkeys(of_rows, Level.ROW))
    check_extremes(spec, found)
    check_scans(spec, found)


def check_folds(program: Program, of_rows: Collection[str]) -> None:
    """Refuse a program that reduces what is the same for all elements of a row.

    Raises:
        NothingReduced: it does.
    """
    others = dict.fromkeys(of_rows, Level.ROW)
    found = flat(program, others)
    of = levels(found, others)
    for part in (part for term in found.terms for part in walk(term)):
        if makes_a_loop(part) and level(part.args[0], of) < Level.ELEMENT:
            raise NothingReduced(part.span, what=f"what {part.spec} reduces", of="row")


def check_extremes(spec: Spec, found: Program) -> None:
    """Refuse `max` and `min`, in a flat program, of other rows than a dimension, or beside an index.

    Raises:
        OneDimension, NotWithRows: there is such.
    """
    for each in (let.term for let in found.lets if is_fold(let.term) and let.term.spec in FIRST):
        of = spec.over
        if of is None or of.groups or of.of_channel or of.is_part or len(of.of(9)) > 1:
            raise OneDimension(each.span, name=each.spec)
        if spec.indices:
            raise NotWithRows(each.span, what=f"an index beside {each.spec}", remedy=IN_TWO)


def check_scans(spec: Spec, found: Program) -> None:
    """Refuse what no kernel of scans computes, of a flat program.

    Raises:
        NotWithRows, NotWithResults: there is an index beside one, or several results beside a place.
        OneScan: there is another reduction or scan beside one, or beside what finds an element.
        NotTheResult, NotWithRows: a formula, or a reduction, goes on behind the place of an element.
        OneDimension: rows have several dimensions.
    """
    loops = [let.term for let in found.lets if makes_a_loop(let.term)]
    first = next((loop for loop in loops if is_scan(loop) or loop.spec in FINDS), None)
    if first is None:
        return
    assert spec.over is not None
    name, others = first.spec, [loop for loop in loops if loop is not first]
    if spec.indices:
        raise NotWithRows(first.span, what=f"an index beside {name}", remedy=IN_TWO)
    if name in FINDS and spec.results:
        raise NotWithResults(first.span, what=name, remedy="give the place a spec of its own")
    if others:
        raise OneScan(others[0].span, name=name, other=others[0].spec)
    if name in FINDS and (found.lets[-1].term is not first or not isinstance(found.results[0], Name)):
        raise NotTheResult(first.span, name=name)
    if name in FINDS and spec.reduction != "none":
        raise NotWithRows(spec.span, what=f"a reduction of {name}", remedy="leave the reduction out")
    if spec.over.groups or (spec.over != Over(-1) and spec.over.count != 1):
        raise OneDimension(first.span, name=name)


def check_shapes(spec: Spec, program: Program) -> None:
    """Refuse results of which some are values of elements and others are not.

    Raises:
        OfTwoShapes: there are such.
    """
    of = levels(program)
    found = [level(result, of) for result in program.results]
    for name, own in zip(spec.results, found, strict=False):
        if own is not found[0]:
            span = next(line.span for line in spec.where if line.name == name)
            shapes = {"of_first": SHAPES[found[0]], "of_other": SHAPES[own]}
            raise OfTwoShapes(span, first=spec.results[0], other=name, **shapes)


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
