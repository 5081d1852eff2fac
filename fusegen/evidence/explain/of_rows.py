"""The explanation of a spec with rows: the loops of both passes, and what follows from each once a row."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fusegen.algebra.rows.phases import Phase
from fusegen.codegen.emit.counts import TITLES
from fusegen.codegen.printers.notation import term as plain
from fusegen.compiler.row_kernels import CompiledRows
from fusegen.core.folds import LENGTH, SHARE
from fusegen.core.method import Pass
from fusegen.core.term import Let, Name, SpecCall, Term
from fusegen.evidence.explain.formats import FORMATS, Format, head, named
from fusegen.evidence.explain.records import Record, head_record

LOOP = "Loop {} over the elements of a row"
PICK = "Step {}, of the element that the index picks"
BEHIND, BEFORE = "Behind it, once a row", "Once a row, before the loops"
STORED = "Stored once a row: {}"
READ = f"{LENGTH} is the number of elements of a row, and {SHARE} its inverse."
WIDE = "Values of rows, and their gradients, are in {} where tensors have 16 bits."
SAME_BITS = (
    "Sums are added in an order that the length of a row decides: it has the same bits in any batch."
)


@dataclass(frozen=True)
class Loop:
    """A loop over the elements of a row."""

    number: int  # its place in the pass, from 1; 0 if it is no loop, and reads values of rows
    picks: bool  # whether it is of the element that an index picks alone
    steps: tuple[Let, ...]  # what it computes of each element; what it reduces is a step, too
    stored: tuple[tuple[str, Term], ...]  # what the last loop stores, each with its name
    row_stored: tuple[tuple[str, Term], ...]  # the same of results that are values of rows beside these
    behind: tuple[Let, ...]  # what follows once a row


def loops(of: CompiledRows, which: Pass) -> tuple[Loop, ...]:
    """Return the loops of a pass, in order."""
    gradients = tuple(f"gradient of {of.schedules.forward.inputs[k]}" for k in of.outputs)
    results = of.spec.results or ("y",)
    of_rows = [results[k] for k in of.row_results] if of.is_mixed else []
    values = tuple(name for name in results if name not in of_rows)
    outputs = gradients if which is Pass.BACKWARD else values
    made = of.schedules[which]
    found = [_loop(k, phase, outputs) for k, phase in enumerate(made.phases, not made.loads)]
    stored = zip(of_rows, map(Name, made.sums), strict=False)  # no gradient is one
    found[-1] = replace(found[-1], row_stored=tuple(stored))
    if of.scans and found[1:]:  # what is scanned is stored in the loop that scans it
        *found, scan, last = found
        steps = dict.fromkeys((*scan.steps, *last.steps))
        found.append(replace(last, number=scan.number, steps=tuple(steps)))
    return tuple(found)


def _loop(number: int, phase: Phase, outputs: tuple[str, ...]) -> Loop:
    elements, row = phase.elements, phase.row
    results = elements.results * len(phase.folds)  # of one, the mean and the variance
    pairs = zip(phase.folded, phase.folds, results, strict=False)
    folded = tuple(Let(name, SpecCall(by.name, (result,))) for name, by, result in pairs)
    if phase.scan:
        folded = (Let(phase.folded[0], SpecCall(phase.scan.name, elements.results)),)
    named = tuple(
        Let(name, result)
        for name, result in zip(phase.values, row.results, strict=True)
        if result != Name(name)
    )
    stored = () if phase.folds or phase.loads else tuple(zip(outputs, elements.results, strict=True))
    steps = tuple(let for let in (*elements.lets, *folded) if let.term != Name(let.name))
    return Loop(number, phase.picks, steps, stored, (), (*row.lets, *named))


def written_rows(of: CompiledRows, form: str) -> str:
    """Return the explanation as text in a form of `FORMATS`."""
    style = FORMATS[form]
    lines = head(style, of.spec)
    for which, title in TITLES.items():
        lines.append(style.heading(title))
        for loop in loops(of, which):
            lines += _written(loop, style)
    reads_length = any({LENGTH, SHARE} & {*of.schedules[which].values} for which in Pass)
    wide = [style.word(WIDE.format(of.spec.over.dtype))] if of.spec.over and of.is_wide else []
    lines += ["", *wide, *[style.word(READ)] * reads_length, *[style.word(SAME_BITS)] * of.reduces]
    return "\n".join(lines) + "\n"


def _written(loop: Loop, style: Format) -> Iterator[str]:
    if loop.number:
        yield from (
            "",
            style.word(PICK.format(loop.number) if loop.picks else LOOP.format(loop.number)),
            "",
        )
    yield from named(style, loop.steps)
    yield from (style.line(f"{name} = {style.term(result)}") for name, result in loop.stored)
    if loop.row_stored:
        shown = (name if Name(name) == of else f"{name} = {style.term(of)}" for name, of in loop.row_stored)
        yield from ("", style.word(STORED.format(", ".join(shown))))
    if loop.behind:
        yield from ("", style.word(BEHIND if loop.number else BEFORE), "")
        yield from named(style, loop.behind)


def row_records(of: CompiledRows) -> Iterator[Record]:
    """Yield the records of the explanation, in the order of its text."""
    yield head_record(of.spec)
    for which, title in TITLES.items():
        for loop in loops(of, which):
            yield {
                "kind": "loop",
                "spec": of.spec.name,
                "part": title,
                "number": loop.number,
                "steps": {let.name: plain(let.term) for let in loop.steps},
                "stored": {name: plain(result) for name, result in (*loop.stored, *loop.row_stored)},
                "behind": {let.name: plain(let.term) for let in loop.behind},
            }
