"""The explanation of a spec with a pooling: what is computed of each element, and of each window."""

from collections.abc import Iterator

from fusegen.codegen.printers.notation import term as plain
from fusegen.compiler.row_kernels import CompiledRows
from fusegen.compiler.window_kernels import CompiledWindows
from fusegen.core.folds import LENGTH, fold
from fusegen.core.term import Let, Program
from fusegen.evidence.explain.formats import FORMATS, head, named
from fusegen.evidence.explain.of_rows import row_records, written_rows
from fusegen.evidence.explain.records import Record, head_record

FRONT, POOL, BEHIND = "Of each element of a window", "Of the window", "Behind it"
ELEMENT = "Of each element, where grad is the sum of what its windows pass on"
WINDOW = "Of each window, before: what it passes on is the first result"
READ = f"{LENGTH} is the number by which an average divides."
Parts = tuple[tuple[str, tuple[Let, ...]], ...]


def _steps(of: CompiledWindows) -> dict[str, Parts]:
    forward, backward = of.programs
    (pooled,) = forward.front.results
    pool = (Let(of.pooled, fold(of.window.pooling.fold, pooled)),)
    front = [f"gradient of {name}" for name in of.in_front]
    behind = ["passed on", *(f"gradient of {name}" for name in forward.behind.inputs[1:])]
    return {
        "Forward": (
            (FRONT, forward.front.lets),
            (POOL, pool),
            (BEHIND, _named(forward.behind, ["y"])),
        ),
        "Gradient": (
            (WINDOW, _named(backward.behind, behind)),
            (ELEMENT, _named(backward.front, front)),
        ),
    }


def _named(program: Program, names: list[str]) -> tuple[Let, ...]:
    return (*program.lets, *map(Let, names, program.results))


def written_windows(of: CompiledWindows, form: str) -> str:
    """Return the explanation as text in a form of `FORMATS`."""
    style, window = FORMATS[form], of.window
    lines = head(style, of.spec)
    for title, parts in _steps(of).items():
        lines.append(style.heading(title))
        for part, lets in parts:
            lines += ["", style.word(part), ""] if lets else []
            lines += named(style, lets)
    sizes = f"Windows of {window.kernel} at {window.stride}, padding {window.padding}"
    sizes += f", dilation {window.dilation}."
    if window.output:
        sizes = f"Windows of which the result has the sizes {window.output}, 0 for that of the tensor."
    lines += ["", style.word(sizes)]
    lines += [style.word(READ)] * window.pooling.averages
    return "\n".join(lines) + "\n"


def window_records(of: CompiledWindows) -> Iterator[Record]:
    """Yield the records of the explanation, in the order of its text."""
    yield head_record(of.spec)
    for title, parts in _steps(of).items():
        for part, lets in parts:
            steps = {let.name: plain(let.term) for let in lets}
            yield {"kind": "part", "spec": of.spec.name, "pass": title, "of": part, "steps": steps}


def reduced(of: CompiledRows | CompiledWindows, form: str) -> tuple[Iterator[Record], str]:
    """Return the explanation of a spec that reduces rows or windows: its records, and its text."""
    if isinstance(of, CompiledRows):
        return row_records(of), written_rows(of, form)
    return window_records(of), written_windows(of, form)
