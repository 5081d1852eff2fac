"""Tables of speeds, from what `fusegen bench --json` wrote: as fractions of a copy's, or with the times."""

from __future__ import annotations

from fusegen.bench.competitors import COMPILED, COPY, EAGER, OURS, Case
from fusegen.bench.results import Report

PANELS = [(dtype, what) for dtype in ("float32", "bfloat16") for what in ("forward", "backward")]
RIVALS = (OURS, EAGER, COMPILED)


def table(report: Report) -> list[str]:
    """The table of a report, as lines of Markdown: fractions if it has all of `PANELS`, else times."""
    measured = {(row.case.dtype, row.case.what) for row in report.rows}
    return fractions(report) if measured >= set(PANELS) else times(report)


def fractions(report: Report) -> list[str]:
    """Speeds of each competitor as fractions of a copy's: a line a spec."""
    lines = [f"| | {' | '.join(f'{dtype} {what}' for dtype, what in PANELS)} |", "|---|---|---|---|---|"]
    cases = {(row.case.name, row.case.dtype, row.case.what): row.case for row in report.rows}
    for name in dict.fromkeys(name for name, *_ in cases):
        mine = [cases[name, dtype, what] for dtype, what in PANELS]
        cells = [", ".join(_fraction(report, who, case) for who in RIVALS) for case in mine]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def times(report: Report) -> list[str]:
    """Times in milliseconds, and ours as a fraction of a copy's and of eager's speed: a line a case."""
    lines = ["| | ms | of a copy | of eager | eager ms | `torch.compile` ms |", "|---|---|---|---|---|---|"]
    for case in dict.fromkeys(row.case for row in report.rows):
        ours, eager, compiled = (report.of(who, case) for who in RIVALS)
        assert ours
        cells = [f"{row.time.median:.3f}" if row and row.time else "-" for row in (ours, eager, compiled)]
        of = [f"{report.share(ours, COPY) or 0:.3f}", f"{report.share(ours, EAGER) or 0:.2f}"]
        lines.append(f"| {case.name} | {cells[0]} | {' | '.join(of)} | {' | '.join(cells[1:])} |")
    return lines


def _fraction(report: Report, who: str, case: Case) -> str:
    """A competitor's speed as a fraction of a copy's."""
    row = report.of(who, case)
    found = row and report.share(row, COPY)
    return f"{found:.2f}" if found else "-"
