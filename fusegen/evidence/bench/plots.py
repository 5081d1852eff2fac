"""Pictures of a report, taller than wide: speed-ups over eager by spec, or by size."""

from collections.abc import Callable, Iterable
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from fusegen.evidence.bench.case import Case
from fusegen.evidence.bench.competitors import COMPILED, COPY, EAGER, OURS
from fusegen.evidence.bench.measurements import Report
from fusegen.evidence.plot_style import (
    BLUE,
    GREEN,
    ORANGE,
    OTHERS,
    PHONE,
    SAVED,
    STYLE,
    TALL,
    UNDATED,
    headed,
)

STYLES = {OURS: (BLUE, "o"), COMPILED: (GREEN, "^")}  # colour and marker of a competitor
BARS = {EAGER: BLUE, COMPILED: GREEN}  # the colour of our speed over each
NAME, BAR, PANEL = 0.3, 0.2, 2.6  # inches: of a row's name, a bar, a panel of lines
PREFIXES = ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))
MOST_PANELS = 6
Group = tuple[str, str]  # pass and dtype


def pictures(report: Report) -> dict[str, Figure]:
    """The picture that a report has numbers for, by name: sizes where it has several, or speedups."""
    beside = _ratios(report, OURS, EAGER)
    if not beside:
        return {}
    name = "sizes" if len({case.numel for case in beside}) > 2 else "speedups"
    with mpl.rc_context(STYLE):
        return {name: DRAWN[name](report)}


def save(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write the pictures of a report as SVG and PNG.

    Returns:
        What was written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in pictures(report).items():
        for kind, metadata in UNDATED.items():
            path = folder / f"{name}.{kind}"
            with mpl.rc_context(STYLE):
                figure.savefig(path, metadata=metadata, **SAVED)
            written.append(path)
    return tuple(written)


def speedups(report: Report) -> Figure:
    """Return our speed over eager's and torch.compile's: bars with numbers, a row for each case.

    The largest speed-up over eager comes first.
    """
    over = _speeds(report)
    lines = sorted(over[EAGER], key=lambda line: -over[EAGER][line])
    height = NAME + BAR * len(over)
    tall = max(TALL, 1.5 + len(lines) * height)
    figure = Figure(figsize=(PHONE, tall), layout="constrained")
    axes, bar, names = figure.subplots(), BAR / height, _lines(report)
    for k, (base, ratios) in enumerate(over.items()):
        below = 0.46 + bar * (k - len(over) + 0.5)
        places = [place + below for place, line in enumerate(lines) if line in ratios]
        wide = [ratios[line] for line in lines if line in ratios]
        bars = axes.barh(places, wide, bar, color=BARS[base], label=f"over {base}")
        axes.bar_label(bars, fmt="%.2f", padding=3)
    for place, line in enumerate(lines):
        axes.text(0, place - 0.5 + (1 - bar * len(over)) / 2, names[line], va="center")
    most = max(max(ratios.values()) for ratios in over.values())
    axes.set(xlim=(0, 1.15 * most), ylim=(len(lines) - 0.5, -0.6))
    axes.set_axis_off()
    message = f"{_range(over[EAGER].values())} times\nas fast as eager"
    groups = {", ".join(_group(case)) for case in lines}
    _finish(figure, axes, report, groups.pop() if len(groups) == 1 else "by spec, pass and dtype", message)
    return figure


def _speeds(report: Report) -> dict[str, dict[Case, float]]:
    """Return our speed-ups over each base, by case."""
    over = {base: _ratios(report, OURS, base) for base in BARS}
    return {base: ratios for base, ratios in over.items() if ratios}


def sizes(report: Report) -> Figure:
    """Speed over eager's by size: a panel for each spec, pass and dtype, a line for each competitor."""
    found = {who: _ratios(report, who, EAGER) for who in _competitors(report) if who not in (COPY, EAGER)}
    groups = list(dict.fromkeys(map(_curve, found[OURS])))[:MOST_PANELS]
    figure = Figure(figsize=(PHONE, max(TALL, 1.5 + PANEL * len(groups))), layout="constrained")
    panels = figure.subplots(len(groups), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, group in zip(panels, groups, strict=True):
        for who, ratios in found.items():
            colour, marker = _style(report, who)
            points = sorted((case.numel, ratio) for case, ratio in ratios.items() if _curve(case) == group)
            across, up = [numel for numel, _ in points], [ratio for _, ratio in points]
            axes.plot(across, up, "-", color=colour, marker=marker, markersize=6, label=who)
        axes.axhline(1.0, color=ORANGE, label=EAGER)
        axes.set_title(", ".join(group), loc="left")
        axes.set(ylim=(0, 1.1 * max(1.0, *(max(ratios.values()) for ratios in found.values() if ratios))))
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: elements(value)))
    drawn = [ratio for case, ratio in found[OURS].items() if _curve(case) in groups]
    told = f"{_range(drawn)} times eager's\nspeed at every size"
    _finish(figure, panels[0], report, "speed over eager's, by elements", told)
    return figure


def _ratios(report: Report, who: str, base: str) -> dict[Case, float]:
    """Return a competitor's speed as a multiple of another's, by case."""
    shares = {row.case: report.share(row, base) for row in report.rows if row.who == who}
    return {case: share for case, share in shares.items() if share is not None}


def _curve(case: Case) -> tuple[str, str, str]:
    return case.name, case.what, case.dtype


def _range(ratios: Iterable[float]) -> str:
    every = sorted({f"{ratio:.2f}" for ratio in ratios}, key=float)
    return " to ".join((every[0], every[-1])[: len(every)])


def elements(count: float) -> str:
    """Return a count of elements in binary prefixes: ``16 Mi``."""
    for size, prefix in PREFIXES:
        if count >= size:
            return f"{count / size:g} {prefix}"
    return f"{count:g}"


def _finish(figure: Figure, axes: Axes, report: Report, label: str, message: str) -> None:
    """The message of a picture and its legend above it, and below it what was measured, on what."""
    words = [word for key, word in report.machine.items() if key != "date"]
    figure.supxlabel(f"{label};\n{', '.join(words)}", fontsize="medium")
    headed(figure, axes, message)


def _group(case: Case) -> Group:
    return case.what, case.dtype


def _lines(report: Report) -> dict[Case, str]:
    """Return the cases of a picture, and what each is called: the spec, and what is not the same in all."""
    cases = report.cases()
    shapes, groups = ({of(case) for case in cases} for of in (lambda case: case.shape, _group))
    return {
        case: ", ".join(
            [case.name, *[elements(case.numel)] * (len(shapes) > 1), *_group(case) * (len(groups) > 1)]
        )
        for case in cases
    }


def _competitors(report: Report) -> list[str]:
    return list(dict.fromkeys(row.who for row in report.rows))


def _style(report: Report, who: str) -> tuple[str, str]:
    if who in STYLES:
        return STYLES[who]
    others = [name for name in _competitors(report) if name not in (*STYLES, COPY, EAGER)]
    return OTHERS[others.index(who) % len(OTHERS)]


DRAWN: dict[str, Callable[[Report], Figure]] = {"sizes": sizes, "speedups": speedups}
