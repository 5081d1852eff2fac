"""The tables of speeds in README.md and docs/speed.md, as docs/headline.json and docs/bench.json have them.

make measure            # on a GPU: measures, draws docs/pictures, prints these tables
python docs/speed.py
"""

from __future__ import annotations

from pathlib import Path

from fusegen.bench.contest import COMPILED, COPY, EAGER, OURS, Case
from fusegen.bench.results import Report, from_json

DOCS = Path(__file__).resolve().parent
PANELS = [(dtype, what) for dtype in ("float32", "bfloat16") for what in ("forward", "backward")]
RIVALS = (OURS, EAGER, COMPILED)


def shares(report: Report) -> list[str]:
    """Speeds at one size, of a copy's: a line a spec."""
    lines = [f"| | {' | '.join(f'{dtype} {what}' for dtype, what in PANELS)} |", "|---|---|---|---|---|"]
    cases = {(row.case.name, row.case.dtype, row.case.what): row.case for row in report.rows}
    for name in dict.fromkeys(name for name, *_ in cases):
        mine = [cases[name, dtype, what] for dtype, what in PANELS]
        cells = [", ".join(share(report, who, case) for who in RIVALS) for case in mine]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def share(report: Report, who: str, case: Case) -> str:
    """A competitor's speed, of a copy's."""
    row = report.of(who, case)
    found = row and report.share(row, COPY)
    return f"{found:.2f}" if found else "-"


def headline(report: Report) -> list[str]:
    """Times at the headline shape, and ours of a copy's and eager's speed."""
    lines = ["| | ms | of a copy | of eager | eager ms | `torch.compile` ms |", "|---|---|---|---|---|---|"]
    for case in dict.fromkeys(row.case for row in report.rows):
        ours, eager, compiled = (report.of(who, case) for who in RIVALS)
        assert ours
        times = [f"{row.time.median:.3f}" if row and row.time else "-" for row in (ours, eager, compiled)]
        of = [f"{report.share(ours, COPY) or 0:.3f}", f"{report.share(ours, EAGER) or 0:.2f}"]
        lines.append(f"| {case.name} | {times[0]} | {' | '.join(of)} | {' | '.join(times[1:])} |")
    return lines


TABLES = {"headline": headline, "bench": shares}


def table(name: str) -> list[str]:
    """The lines of a table in Markdown, by the file that it is made of."""
    return TABLES[name](from_json(DOCS / f"{name}.json"))


if __name__ == "__main__":
    for name in TABLES:
        print("\n".join(table(name)) + "\n")
