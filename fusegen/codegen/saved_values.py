"""Sums and largest elements of a row that the forward pass saves on CUDA, and the gradient reads.

The gradient has folds of its own, and the forward pass's again. What that pass saves leaves to the loops
the former, and phases that waited for the latter are one loop.
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
    """Return the numbers of what is saved of a row, by the names in each pass; of some kinds nothing is."""
    forward, backward = of.schedules.forward, of.schedules.backward
    saved: Both[dict[str, int]] = Both({}, {})
    made: Both[Numbers] = Both(saved.forward, saved.backward)
    others = of.scans or of.in_parts or of.is_mixed or of.is_wide or of.found_forward
    if others or backward.is_placed or backward.inputs[-len(forward.inputs) :] != forward.inputs:
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
        types: of the phases.
        awaited: the values of the row that are known behind the loop only.
        is_saved: whether a result is saved.
    """

    types: list[str] = field(default_factory=list)
    awaited: set[str] = field(default_factory=set)
    is_saved: bool = False


def loops(
    of: CompiledRows, which: Pass, device: Device, types: Sequence[str]
) -> tuple[str, Sequence[str]] | None:
    """Return the type of a gradient's values and those of its phases, if it reads what is saved."""
    saved = numbers(of).backward
    if which is not Pass.BACKWARD or not device.launched or not saved:
        return None
    found: list[str] = []
    loop = _Loop()
    *phases, last = zip(of.schedules.backward.phases[-len(types) :], types, strict=True)
    for phase, type_ in phases:
        read = {*phase.elements.params} if not _are_saved(phase, saved) else set()
        if phase.picks or phase.loads or read & loop.awaited:
            found += _closed(loop)
            loop = _Loop()
        if phase.picks or phase.loads:
            found.append(type_)
        else:
            _add(loop, phase, type_, saved)
    count = len({*saved.values()})
    return f"WithSaved<{FUNCTORS[which]}Values, {count}>", [*found, *_closed(loop), last[1]]


def loops_of_gradient(of: CompiledRows) -> int:
    """Return how many loops the gradient has on CUDA, with the one that stores; 0 if nothing is saved."""
    phases = of.schedules.backward.phases
    types = [str(k) for k, _ in enumerate(phases)]
    picked = [type_ for type_, phase in zip(types, phases, strict=True) if phase.picks or phase.loads]
    _, found = loops(of, Pass.BACKWARD, Device.CUDA, types) or ("", ())
    return sum(
        each not in picked and not (each.startswith("OneLoop") and "-1" not in each) for each in found
    )


def _are_saved(phase: Phase, saved: Numbers) -> bool:
    return all(name in saved for name in phase.folded)


def _add(loop: _Loop, phase: Phase, type_: str, saved: Numbers) -> None:
    """Add a phase to a loop."""
    loop.types.append(f"Saved<{type_}, {', '.join(str(saved.get(name, -1)) for name in phase.folded)}>")
    loop.is_saved = loop.is_saved or any(name in saved for name in phase.folded)
    loop.awaited |= {name for name in phase.folded if name not in saved}
    awaited = set(loop.awaited)
    for let in phase.row.lets:
        awaited |= {let.name} if awaited & {*names(let.term)} else set()
    for name, result in zip(phase.values, phase.row.results, strict=True):
        loop.awaited |= {name} if awaited & {*names(result)} else set()


def _closed(loop: _Loop) -> list[str]:
    """Return the type of a loop, if there is one; one alone, of which nothing is saved, is as declared."""
    if not loop.types:
        return []
    if not loop.is_saved and len(loop.types) == 1:
        return [loop.types[0].removeprefix("Saved<").partition(",")[0]]
    return [f"OneLoop<{', '.join(loop.types)}>"]
