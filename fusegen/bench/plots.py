"""Pictures of a report: fractions of copy bandwidth, speed-ups over eager, and throughput by size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from fusegen.bench.competitors import COMPILED, COPY, EAGER, OURS, Case
from fusegen.bench.results import Report
from fusegen.plot_style import BLUE, GREEN, GREY, ORANGE, OTHERS, SAVED, STYLE, UNDATED

STYLES = {  # colour and marker of a competitor
    OURS: (BLUE, "o"),
    EAGER: (ORANGE, "s"),
    COMPILED: (GREEN, "^"),
    COPY: (GREY, "|"),
}
WIDTH, LINE, MARGIN, PANEL = 7.0, 0.24, 1.4, 2.2  # inches: of a picture, a line, their names, a panel
PREFIXES = ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))
MOST_PANELS, MOST_ACROSS = 6, 4
Group = tuple[str, str]  # pass and dtype


def pictures(report: Report) -> dict[str, Figure]:
    """The pictures that a report has numbers for, by name: shares and speedups, or sizes."""
    drawn: dict[str, Callable[[Report], Figure]] = {"shares": shares, "speedups": speedups}
    if len({row.case.numel for row in report.rows}) > 2:
        drawn = {"sizes": sizes}
    with mpl.rc_context(STYLE):
        return {name: draw(report) for name, draw in drawn.items()}


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


def shares(report: Report) -> Figure:
    """The fraction of copy bandwidth of each case: points, a panel for each pass and dtype."""
    rivals = [who for who in _competitors(report) if who != COPY]
    figure, panels = _panels(report, 1)
    for group, axes in panels.items():
        for who in rivals:
            colour, marker = _style(report, who)
            above = 2 + (who == OURS)
            axes.scatter(
                *_speeds(report, who, COPY, group),
                s=26,
                color=colour,
                marker=marker,
                label=who,
                zorder=above,
            )
    first = next(iter(panels.values()))
    first.set_xlim(left=0)
    _finish(figure, first, report, "fraction of copy bandwidth")
    return figure


def speedups(report: Report) -> Figure:
    """The speed-up over eager of each case: bars, a panel for each pass and dtype."""
    rivals = [who for who in _competitors(report) if who not in (COPY, EAGER)]
    figure, panels = _panels(report, max(1, len(rivals) / 2))
    height = 0.8 / max(1, len(rivals))
    for group, axes in panels.items():
        for k, who in enumerate(rivals):
            colour, _ = _style(report, who)
            across, down = _speeds(report, who, EAGER, group)
            places = [place - 0.4 + height * (k + 0.5) for place in down]
            axes.barh(places, across, height, color=colour, label=who)
    first = next(iter(panels.values()))
    first.set_xlim(left=0)
    _finish(figure, first, report, "speed-up over eager")
    return figure


def _panels(report: Report, lines: float) -> tuple[Figure, dict[Group, Axes]]:
    """A picture with a panel for each pass and dtype, and in all the same lines: specs and shapes.

    Args:
        report: what is shown.
        lines: how high a case is.
    """
    groups = list(dict.fromkeys(_group(case) for case in report.cases()))
    names = _lines(report)
    across = min(len(groups), MOST_ACROSS)
    rows = -(-len(groups) // across)
    size = (MARGIN + PANEL * across, rows * (0.5 + LINE * len(names) * lines) + 0.6)
    figure = Figure(figsize=(max(WIDTH, size[0]), size[1]), layout="constrained")
    grid = figure.subplots(rows, across, sharey=True, sharex=True, squeeze=False).ravel()
    for axes in grid[len(groups) :]:
        axes.set_axis_off()
    panels = dict(zip(groups, grid, strict=False))
    for group, axes in panels.items():
        axes.axvline(1.0, color=GREY, linewidth=1)
        axes.set(ylim=(len(names) - 0.5, -0.5))
        axes.set_yticks(range(len(names)), list(names.values()))
        axes.set_title(", ".join(group), loc="left", fontsize=9)
    return figure, panels


def _speeds(report: Report, who: str, base: str, group: Group) -> tuple[list[float], list[int]]:
    """A competitor's speeds in a panel, as multiples of another's, and their lines."""
    places = {line: place for place, line in enumerate(_lines(report))}
    found = [
        (report.share(row, base), places[_line(row.case)])
        for row in report.rows
        if row.who == who and _group(row.case) == group
    ]
    timed = [(share, place) for share, place in found if share is not None]
    return [share for share, _ in timed], [place for _, place in timed]


def sizes(report: Report) -> Figure:
    """Throughput by size: a panel for each spec, pass and dtype, a line for each competitor."""
    groups = list(dict.fromkeys((c.name, c.what, c.dtype) for c in report.cases()))[:MOST_PANELS]
    figure = Figure(figsize=(WIDTH, 0.6 + 2.6 * len(groups)), layout="constrained")
    panels = figure.subplots(len(groups), 1, sharex=True, squeeze=False)[:, 0]
    for axes, group in zip(panels, groups, strict=True):
        for who in _competitors(report):
            colour, marker = _style(report, who)
            points = sorted(
                (row.case.numel, row.speed)
                for row in report.rows
                if row.who == who and row.speed and (row.case.name, row.case.what, row.case.dtype) == group
            )
            if points:
                dashes = "--" if who == COPY else "-"
                axes.plot(
                    *zip(*points, strict=True), dashes, color=colour, marker=marker, markersize=4, label=who
                )
        axes.set_title(", ".join(group), loc="right", fontsize=9)
        axes.set(ylabel="throughput, GB/s", ylim=(0, None))
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: elements(value)))
    _finish(figure, panels[0], report, "elements of a tensor")
    return figure


def elements(count: float) -> str:
    """A count of elements in binary prefixes: ``16 Mi``."""
    for size, prefix in PREFIXES:
        if count >= size:
            return f"{count / size:g} {prefix}"
    return f"{count:g}"


def _finish(figure: Figure, axes: Axes, report: Report, label: str) -> None:
    words = [word for key, word in report.machine.items() if key != "date"]
    figure.supxlabel(f"{label}; {', '.join(words)}", fontsize=9)
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", ncols=4, handletextpad=0.3)


def _group(case: Case) -> Group:
    return case.what, case.dtype


def _line(case: Case) -> tuple[str, tuple[int, ...]]:
    return case.name, case.shape


def _lines(report: Report) -> dict[tuple[str, tuple[int, ...]], str]:
    """The lines of a picture, and what each is called: the spec, with the size where there are several."""
    cases = {_line(case): case for case in report.cases()}
    several = len({case.shape for case in cases.values()}) > 1
    return {
        line: f"{case.name}, {elements(case.numel)}" if several else case.name
        for line, case in cases.items()
    }


def _competitors(report: Report) -> list[str]:
    return list(dict.fromkeys(row.who for row in report.rows))


def _style(report: Report, who: str) -> tuple[str, str]:
    if who in STYLES:
        return STYLES[who]
    others = [name for name in _competitors(report) if name not in STYLES]
    return OTHERS[others.index(who) % len(OTHERS)]
