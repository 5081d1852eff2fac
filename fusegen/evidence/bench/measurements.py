"""Measurements as values, as JSON lines, CSV and Markdown, and compared with earlier ones."""

import contextlib
import csv
import io
import json
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from fusegen.errors import NoMeasurements, Span
from fusegen.evidence.bench.case import Case, written
from fusegen.evidence.bench.clock import Spread
from fusegen.evidence.bench.competitors import COPY, EAGER, OURS

FORMAT = 2  # of a head line
NOISY = 0.10  # a spread above this is reported
LEAST = 0.02  # smaller differences are ignored


@dataclass(frozen=True, slots=True)
class Row:
    """One competitor in one case."""

    case: Case  # the case
    who: str  # the competitor
    moved: int  # the bytes that one run reads and writes
    time: Spread | None = None  # of one run; nothing where it was not timed
    # call, graph: microseconds of a call by wall clock, and in a CUDA graph; of small tensors
    call: float | None = None
    graph: float | None = None
    # the most bytes that a run held beside its inputs, a backward pass with its forward pass
    peak: int | None = None
    said: str = ""  # why it was not timed

    @property
    def ours(self) -> bool:
        """True for the row of the generated module."""
        return self.who == OURS

    @property
    def speed(self) -> float | None:
        """Bytes a second, in units of 10**9."""
        return self.moved / self.time.median / 1e6 if self.time else None


@dataclass(frozen=True)
class Report:
    """A run of `fusegen bench`."""

    machine: dict[str, str]  # what it ran on, as words: ``device``, ``torch`` and so on, with the date
    rows: tuple[Row, ...]  # the competitors of each case side by side

    def cases(self) -> tuple[Case, ...]:
        """Return the cases, in the order of the rows."""
        return tuple(dict.fromkeys(row.case for row in self.rows))

    def of(self, who: str, case: Case) -> Row | None:
        """Return a competitor's row in a case."""
        return next((row for row in self.rows if row.case == case and row.who == who), None)

    def share(self, row: Row, who: str) -> float | None:
        """Return the speed of a row as a multiple of a competitor's in the same case."""
        other = self.of(who, row.case)
        if row.time is None or other is None or other.time is None:
            return None
        return other.time.median / row.time.median


def shown(report: Report, row: Row) -> dict[str, str]:
    """Return a row as a table shows it: column by column."""
    case, time = row.case, row.time
    return {
        "spec": case.name,
        "pass": case.what,
        "dtype": case.dtype,
        "shape": written(case.shape),
        "by": row.who,
        "ms": _number(time.median if time else None, 4),
        "spread": f"±{time.noise:.1%}" if time else "",
        "GB/s": _number(row.speed, 0),
        "fraction of copy bandwidth": _number(report.share(row, COPY), 3),
        "speed-up over eager": _number(report.share(row, EAGER), 2),
        "call, µs": _number(row.call, 2),
        "CUDA graph, µs": _number(row.graph, 2),
        "peak, MiB": _number(row.peak / 2**20 if row.peak is not None else None, 1),
        "": row.said,
    }


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def columns(report: Report) -> list[str]:
    """Return the columns of the table that are not empty throughout."""
    rows = [shown(report, row) for row in report.rows]
    return [column for column in (rows[0] if rows else {}) if any(row[column] for row in rows)]


def as_json_lines(report: Report) -> str:
    """Return the report as JSON lines: the machine, then a line for each case."""
    lines: list[dict[str, Any]] = [{"format": FORMAT, "machine": report.machine}]
    for case in report.cases():
        rows = [asdict(row) for row in report.rows if row.case == case]
        lines.append(
            {"case": asdict(case), "rows": [{k: row[k] for k in row if k != "case"} for row in rows]}
        )
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def from_json_lines(path: Path) -> Report:
    """Return the report in a file; of a file to which `--history` appended several, the last one.

    Raises:
        NoMeasurements: the file cannot be read, or is none of this format.
    """
    try:
        lines = [_object(*line) for line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)]
        heads = [place for place, line in enumerate(lines) if "format" in line]
        if not lines:
            raise ValueError("the file is empty")
        if not heads:
            raise ValueError("no line has a format")
        head, *cases = lines[heads[-1] :]
        if head["format"] != FORMAT:
            raise ValueError(f"its format is {head['format']}, and this reads {FORMAT}")
        if "rows" in head:
            raise ValueError("it is a history of an earlier version, which has a line for each run")
        return Report(head["machine"], tuple(row for line in cases for row in _rows(line)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}" if isinstance(error, KeyError | TypeError) else str(error)
        raise NoMeasurements(Span(str(path)), why=why) from None


def of_specs(report: Report, names: Collection[str]) -> Report:
    """Return the part of a report on some specs.

    Raises:
        NoMeasurements: it has none of one of them.
    """
    known = {row.case.name for row in report.rows}
    for name in names:
        if name not in known:
            raise NoMeasurements(Span(name), why="the file has none of a spec of this name")
    return Report(report.machine, tuple(row for row in report.rows if row.case.name in names))


def _object(number: int, line: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict):
            return found
    raise ValueError(f"line {number} is no JSON object; earlier versions wrote one object on many lines")


def _rows(read: dict[str, Any]) -> Iterator[Row]:
    case = Case(**{**read["case"], "shape": tuple(read["case"]["shape"])})
    for row in read["rows"]:
        yield Row(**{**row, "case": case, "time": Spread(**row["time"]) if row["time"] else None})


def as_csv(report: Report) -> str:
    """Return the report for a spreadsheet: one line a row, numbers in full."""
    text = io.StringIO()
    of_case = [field.name for field in fields(Case)]
    heads = [*of_case, "who", "moved", "ms", "low", "high", "turns", "call", "graph", "peak", "said"]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    for row in report.rows:
        case = {**asdict(row.case), "shape": written(row.case.shape)}
        time = row.time
        times = (time.median, time.low, time.high, time.turns) if time else ("",) * 4
        writer.writerow(
            [*case.values(), row.who, row.moved, *times, row.call, row.graph, row.peak, row.said]
        )
    return text.getvalue()


def as_markdown(report: Report) -> str:
    """Return the report as a table for a README or a pull request, under what it ran on."""
    heads = columns(report)
    lines = [", ".join(report.machine.values()) + "\n", "| " + " | ".join(heads) + " |"]
    lines += ["|---" * len(heads) + "|"]
    lines += ["| " + " | ".join(shown(report, row)[head] for head in heads) + " |" for row in report.rows]
    return "\n".join(lines) + "\n"


def noisy(report: Report) -> Iterator[str]:
    """Yield a sentence for each case whose times vary widely."""
    for case in report.cases():
        noise = max((row.time.noise for row in report.rows if row.case == case and row.time), default=0.0)
        if noise > NOISY:
            yield f"{case}: times vary by ±{noise:.0%}; something else may be running"


def slower(before: Report, after: Report) -> Iterator[str]:
    """Yield a sentence for each case in which ours has become slower beyond noise.

    Both are fractions of copy bandwidth in their run, so that another clock of a GPU is no difference.
    """
    for row in after.rows:
        old = before.of(OURS, row.case)
        if not row.ours or old is None or old.time is None:
            continue
        if row.time is None:
            yield f"{row.case}: {row.said}"
            continue
        was, now = before.share(old, COPY), after.share(row, COPY)
        if was is None or now is None:
            was, now = 1 / old.time.median, 1 / row.time.median
        if now < was * (1 - max(LEAST, old.time.noise + row.time.noise)):
            yield f"{row.case}: {was / now:.2f} times as long as before"
