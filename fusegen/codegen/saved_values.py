"""Sums and largest elements of a row that the forward pass saves on CUDA, and the gradient reads.

A gradient has folds of its own, and finds some of the forward pass again. Where these are saved, its loops
find its own alone, and phases that waited for saved ones are one loop.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fusegen.algebra.rows.phases import Phase, Schedule
from fusegen.codegen.printed import FUNCTORS
from fusegen.codegen.row_arithmetic import compares, is_plain
from fusegen.compiler.row_kernels import CompiledRows
from fusegen.core.method import Both, Pass
from fusegen.core.targets import Device
from fusegen.core.term import Name, Program, SpecCall, Term, names, rebuild

Numbers = Mapping[str, int]  # of what is saved, by the names that a pass gives them
KNOWN = "#"  # begins a name that equal terms of both passes have


def numbers(of: CompiledRows) -> Both[Numbers]:
    """Return the numbers of what is saved of a row, by the names in each pass.

    Nothing is of scans and parts of whole tensors, whose kernels have other loops; of values of rows beside
    results of elements, whose phases load and store these; of channels, which keep their moments anyway; of
    gradients that read places, or not all inputs in their order.
    """
    forward, backward = of.schedules.forward, of.schedules.backward
    saved: Both[dict[str, int]] = Both({}, {})
    made: Both[Numbers] = Both(saved.forward, saved.backward)
    is_other = of.scans or of.in_parts or of.is_mixed or of.found_forward
    if is_other or backward.is_placed or backward.inputs[-len(forward.inputs) :] != forward.inputs:
        return made
    known: dict[Term, Name] = {}
    found = {meaning: name for name, meaning in _folds(forward, known)}
    exact = _folded_as_they_are(of) if _are_compared(of) else None
    for name, meaning in _folds(backward, known):
        if meaning in found and (exact is None or found[meaning] in exact):
            saved.backward[name] = saved.forward.setdefault(found[meaning], len(saved.forward))
    return made


def _are_compared(of: CompiledRows) -> bool:
    """Return True if the gradient compares what it computes of elements with values of their row.

    Then both have to be computed in the arithmetic of one kernel: the forward one may have another.
    """
    made = of.schedules.backward
    of_row = {*made.values} - {*made.params}
    return any(compares(phase.elements, of_row) for phase in of.kernels[Pass.BACKWARD, Device.CUDA])


def _folded_as_they_are(of: CompiledRows) -> set[str]:
    """Return the folds of the forward pass that take elements as they are read."""
    phases = of.kernels[Pass.FORWARD, Device.CUDA]
    return {name for each in phases if is_plain(each.elements) for name in each.phase.folded}


def _folds(of: Schedule, known: dict[Term, Name]) -> Iterator[tuple[str, Name]]:
    """Yield the folds of a pass's loops by name, each with the name that equal ones have.

    Args:
        of: the phases of the pass.
        known: those names, by what has them; it is added to.
    """
    values: dict[str, Name] = {}

    def meanings(program: Program) -> list[Name]:
        own = dict(values)
        for let in program.lets:
            own[let.name] = _meaning(let.term, own, known)
        return [_meaning(result, own, known) for result in program.results]

    for phase in of.phases:
        for name, fold, element in zip(phase.folded, phase.folds, meanings(phase.elements), strict=False):
            values[name] = _meaning(SpecCall(fold.name, (element,)), {}, known)
        values |= zip(phase.values, meanings(phase.row), strict=True)
        if not (phase.picks or phase.loads):
            yield from ((name, values[name]) for name in phase.folded)


def _meaning(term: Term, values: Mapping[str, Name], known: dict[Term, Name]) -> Name:
    if isinstance(term, Name):
        return values.get(term.name, term)
    term = rebuild(term, lambda part: _meaning(part, values, known))
    return known.setdefault(term, Name(f"{KNOWN}{len(known)}"))


def lines(of: CompiledRows, which: Pass, device: Device) -> list[str]:
    """Return the line of a forward pass's type that says what it saves, if anything."""
    saved = numbers(of).forward
    if which is not Pass.FORWARD or not device.launched or not saved:
        return []
    setting = "; ".join(f"to[{k}] = p.{name}" for name, k in saved.items())
    return [f"  FUSEGEN_SAVED({len(saved)}, {setting})"]


@dataclass
class _Loop:
    """Phases that are one loop.

    Attributes:
        phases: the type of each, and the number of each of its results, -1 where it is not saved.
        awaited: the values of the row that are known behind the loop only.
    """

    phases: list[tuple[str, list[int]]] = field(default_factory=list)
    awaited: set[str] = field(default_factory=set)

    @property
    def reduces(self) -> bool:
        """True if a result is not saved."""
        return any(-1 in numbers for _, numbers in self.phases)

    @property
    def type_(self) -> str:
        """The type; that of a phase alone of which nothing is saved is as declared."""
        types = [f"Saved<{type_}, {', '.join(map(str, numbers))}>" for type_, numbers in self.phases]
        alone, is_saved = self.phases[0][0], any(n >= 0 for _, numbers in self.phases for n in numbers)
        return f"OneLoop<{', '.join(types)}>" if is_saved or types[1:] else alone


def loops(
    of: CompiledRows, which: Pass, device: Device, types: Sequence[str]
) -> tuple[str, Sequence[str]] | None:
    """Return the type of a gradient's values and those of its phases, if it reads what is saved."""
    count = len(numbers(of).forward)
    if which is not Pass.BACKWARD or not device.launched or not count:
        return None
    found = [each.type_ if isinstance(each, _Loop) else each for each in _cut(of, types)]
    return f"WithSaved<{FUNCTORS[which]}Values, {count}>", [*found, types[-1]]


def loops_of_gradient(of: CompiledRows) -> int:
    """Return how many loops the gradient has on CUDA, with the one that stores; 0 if nothing is saved."""
    if not numbers(of).forward:
        return 0
    found = _cut(of, [""] * len(of.schedules.backward.phases))
    return 1 + sum(isinstance(each, _Loop) and each.reduces for each in found)


def _cut(of: CompiledRows, types: Sequence[str]) -> list[_Loop | str]:
    """Return the loops of a gradient, and the types of phases between them, but for the one that stores."""
    saved = numbers(of).backward
    found: list[_Loop | str] = []
    loop = _Loop()
    *phases, _ = zip(of.schedules.backward.phases[-len(types) :], types, strict=True)
    for phase, type_ in phases:
        own = [saved.get(name, -1) for name in phase.folded]
        if phase.picks or phase.loads:
            found.append(type_)
            loop = _Loop()
            continue
        if not loop.phases or (-1 in own and loop.awaited & {*phase.elements.params}):
            loop = _Loop()
            found.append(loop)
        loop.phases.append((type_, own))
        loop.awaited |= _awaited(
            phase, {*loop.awaited, *(name for name in phase.folded if name not in saved)}
        )
    return found


def _awaited(phase: Phase, awaited: set[str]) -> set[str]:
    """Return the values of a row that are not known before a loop is done, of a phase of the loop.

    Args:
        phase: the phase.
        awaited: what its loop finds, and what phases before it have computed of that.
    """
    steps = set(awaited)
    for let in phase.row.lets:
        steps |= {let.name} if steps & {*names(let.term)} else set()
    pairs = zip(phase.values, phase.row.results, strict=True)
    return awaited | {name for name, result in pairs if steps & {*names(result)}}
