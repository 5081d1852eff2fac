"""Results of `check` for GitHub: annotations of files, and a summary in Markdown.

Source: GitHub Actions, workflow commands: ``::error file=F,line=L,col=C::MESSAGE`` and GITHUB_STEP_SUMMARY.
"""

import html
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fusegen.cli.json_records import Record
from fusegen.cli.output_files import save
from fusegen.errors import FusegenError, Span, SpecErrors

VARIABLE = "GITHUB_STEP_SUMMARY"  # names the file that a job's summary is appended to
LEVELS = {"complaint": "error", "certificate": "warning", "reference": "notice"}  # by kind of record
MOST_ROWS = 50  # of a table


def annotation(
    level: str,  # ``error``, ``warning`` or ``notice``
    message: str,  # of any number of lines
    span: Span,  # the place; with line 0 it is the whole file
) -> str:
    """Return a line that GitHub shows at a place of a file."""
    place = {"file": span.file, "line": span.line, "col": span.column}
    given = ",".join(f"{key}={_escaped(str(value), ':,')}" for key, value in place.items() if value)
    return f"::{level} {given}::{_escaped(message)}" if given else f"::{level}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    """Return a text in which nothing ends the line or the property."""
    return "".join(f"%{ord(c):02X}" if c in "%\r\n" + more else c for c in text)


def of_record(found: Record) -> str | None:
    """Return the annotation of a record of `check`; none of a summary."""
    if found["kind"] == "difference":
        spec = Span(found["spec"], found["line"]) if found["spec"] else Span(found["file"])
        text = f"{found['file']} is not what 'fusegen build' writes (+{found['added']} -{found['removed']})"
        return annotation("error", text, spec)
    level = LEVELS.get(found["kind"])
    return annotation(level, found["text"], Span(found["text"].partition(": ")[0])) if level else None


def of_error(error: FusegenError | SpecErrors) -> Iterator[str]:
    """Yield the annotations of mistakes, each at its line and column."""
    for each in error.errors if isinstance(error, SpecErrors) else (error,):
        hint = f"\nhint: {each.hinted}" if each.hinted else ""
        yield annotation("error", each.message + hint, each.span)


def summary(records: Sequence[Record], errors: Sequence[str] = ()) -> str:
    """Return what `check` recorded: changed kernels and certificates, or its errors, in Markdown."""
    changed = [each for each in records if each["kind"] == "difference"]
    notes = [each["text"] for each in records if each["kind"] in LEVELS]
    parts = ["## fusegen check\n"]
    if errors:
        parts.append("".join(f"<pre>{html.escape(each)}</pre>\n" for each in errors))
    if changed:
        parts.append("".join(_table(changed)))
    if notes:
        parts.append("".join(f"- {_cell(each)}\n" for each in notes[:MOST_ROWS]))
    for each in records:
        if each["kind"] == "summary":
            counts = f"{each['modules']} modules, {each['differences']} differences"
            parts.append(f"{counts}, {each['uncertified']} modules without a certificate\n")
    return "\n".join(parts)


def _table(changed: Sequence[Record]) -> Iterator[str]:
    yield "| file | lines | changed kernels | certificate |\n|---|---|---|---|\n"
    for each in changed[:MOST_ROWS]:
        touched = "; ".join(f"{device} {', '.join(names)}" for device, names in each["kernels"].items())
        states = "; ".join(f"{device} {state}" for device, state in each["certificate"].items())
        cells = (f"`{each['file']}`", f"+{each['added']} -{each['removed']}", touched, states)
        yield f"| {' | '.join(map(_cell, cells))} |\n"
    if len(changed) > MOST_ROWS:
        yield f"| and {len(changed) - MOST_ROWS} more | | | |\n"


def _cell(text: str) -> str:
    """Return a text that ends no cell and begins no HTML."""
    return html.escape(" ".join(text.split()), quote=False).replace("|", "\\|")


def append_summary(records: Sequence[Record], errors: Iterable[str] = ()) -> None:
    """Append the summary to the file that GitHub names, if it names one."""
    file = os.environ.get(VARIABLE)
    if file:
        save(Path(file), summary(records, tuple(errors)), "a")
