"""Tables of speeds, from what `fusegen bench --json` wrote: fractions of copy bandwidth, or times.

A cell holds one number; "-" stands for a competitor that was not timed.
"""

from collections.abc import Callable

from fusegen.evidence.bench.case import Case, written
from fusegen.evidence.bench.competitors import COMPILED, COPY, EAGER, OURS
from fusegen.evidence.bench.measurements import Report

PANELS = [(dtype, what) for dtype in ("float32", "bfloat16") for what in ("forward", "backward")]
RIVALS = (OURS, EAGER, COMPILED)
TIMES = ("ms", "fraction of copy bandwidth", "speed-up over eager", "eager, ms", "`torch.compile`, ms")
KEYS: dict[str, Callable[[Case], str]] = {  # of a case, beside its spec
    "pass": lambda case: case.what,
    "dtype": lambda case: case.dtype,
    "shape": lambda case: written(case.shape),
}


def table(report: Report) -> list[str]:
    """The table of a report, as lines of Markdown: fractions if it has all of `PANELS`, else times."""
    measured = {(row.case.dtype, row.case.what) for row in report.rows}
    return fractions(report) if measured >= set(PANELS) else times(report)


def fractions(report: Report) -> list[str]:
    """The fractions of copy bandwidth: a line for each competitor of a spec, a column a dtype and pass."""
    cases = {(case.name, case.shape, (case.dtype, case.what)): case for case in report.cases()}
    panels = list(dict.fromkeys((*PANELS, *(panel for *_, panel in cases))))
    keys = _differing(report, ("shape",))
    lines = _head("fraction of copy bandwidth", *keys, "by", *map(" ".join, panels))
    for name, shape in dict.fromkeys(key[:2] for key in cases):
        mine = [cases.get((name, shape, panel)) for panel in panels]
        labels = [KEYS[key](next(filter(None, mine))) for key in keys]
        for who in RIVALS:
            cells = [_fraction(report, who, case, 2) for case in mine]
            if any(cell != "-" for cell in cells):
                lines.append(_line(name, *labels, who, *cells))
    return lines


def times(report: Report) -> list[str]:
    """Times in milliseconds, the fraction of copy bandwidth and the speed-up over eager: a line a case."""
    keys = _differing(report, tuple(KEYS))
    lines = _head("", *keys, *TIMES)
    for case in report.cases():
        ours, eager, compiled = (_milliseconds(report, who, case) for who in RIVALS)
        of = _fraction(report, OURS, case, 3), _fraction(report, OURS, case, 2, EAGER)
        lines.append(_line(case.name, *(KEYS[key](case) for key in keys), ours, *of, eager, compiled))
    return lines


def _differing(report: Report, keys: tuple[str, ...]) -> list[str]:
    return [key for key in keys if len({KEYS[key](case) for case in report.cases()}) > 1]


def _head(*heads: str) -> list[str]:
    return [_line(*heads), "|---" * len(heads) + "|"]


def _line(*cells: str) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _milliseconds(report: Report, who: str, case: Case) -> str:
    row = report.of(who, case)
    return f"{row.time.median:.3f}" if row and row.time else "-"


def _fraction(report: Report, who: str, case: Case | None, digits: int, base: str = COPY) -> str:
    """Return the speed of a competitor as a multiple of another's; a copy's without one."""
    row = report.of(who, case) if case else None
    found = row and report.share(row, base)
    return f"{found:.{digits}f}" if found else "-"
