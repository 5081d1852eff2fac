"""Tables of speeds, from what `fusegen bench --json` wrote: fractions of copy bandwidth, or times."""

from __future__ import annotations

from fusegen.bench.competitors import COMPILED, COPY, EAGER, OURS, Case
from fusegen.bench.results import Report

PANELS = [(dtype, what) for dtype in ("float32", "bfloat16") for what in ("forward", "backward")]
RIVALS = (OURS, EAGER, COMPILED)
TIMES = "| | ms | fraction of copy bandwidth | speed-up over eager | eager, ms | `torch.compile`, ms |"


def table(report: Report) -> list[str]:
    """The table of a report, as lines of Markdown: fractions if it has all of `PANELS`, else times."""
    measured = {(row.case.dtype, row.case.what) for row in report.rows}
    return fractions(report) if measured >= set(PANELS) else times(report)


def fractions(report: Report) -> list[str]:
    """The fraction of copy bandwidth of each competitor: a line a spec."""
    lines = [f"| | {' | '.join(f'{dtype} {what}' for dtype, what in PANELS)} |", "|---|---|---|---|---|"]
    cases = {(row.case.name, row.case.dtype, row.case.what): row.case for row in report.rows}
    for name in dict.fromkeys(name for name, *_ in cases):
        mine = [cases[name, dtype, what] for dtype, what in PANELS]
        cells = [", ".join(_fraction(report, who, case) for who in RIVALS) for case in mine]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def times(report: Report) -> list[str]:
    """Times in milliseconds, the fraction of copy bandwidth and the speed-up over eager: a line a case."""
    lines = [TIMES, "|---|---|---|---|---|---|"]
    for case in dict.fromkeys(row.case for row in report.rows):
        ours, eager, compiled = (report.of(who, case) for who in RIVALS)
        assert ours
        cells = [f"{row.time.median:.3f}" if row and row.time else "-" for row in (ours, eager, compiled)]
        of = [f"{report.share(ours, COPY) or 0:.3f}", f"{report.share(ours, EAGER) or 0:.2f}"]
        lines.append(f"| {case.name} | {cells[0]} | {' | '.join(of)} | {' | '.join(cells[1:])} |")
    return lines


def _fraction(report: Report, who: str, case: Case) -> str:
    """The fraction of copy bandwidth of a competitor."""
    row = report.of(who, case)
    found = row and report.share(row, COPY)
    return f"{found:.2f}" if found else "-"
