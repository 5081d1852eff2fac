"""Pictures of a report, the same bytes each time, for light and for dark pages.

Colours are Okabe and Ito's, which people tell apart however they see colours, each with a shape of its own
(Okabe and Ito 2008, Color Universal Design); text and lines are a grey that reads on white and on black, on
nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from fusegen.bench.contest import COMPILED, COPY, EAGER, OURS, Case
from fusegen.bench.results import Report

GREY = "#7a7a7a"
LOOKS = {  # colour and marker of a competitor
    OURS: ("#0072B2", "o"),
    EAGER: ("#E69F00", "s"),
    COMPILED: ("#009E73", "^"),
    COPY: (GREY, "|"),
}
OTHERS = (("#CC79A7", "D"), ("#D55E00", "v"), ("#56B4E9", "P"))
STYLE: Any = {  # whose keys are literals of matplotlib
    "svg.hashsalt": "fusegen",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
}
WIDTH, LINE = 7.0, 0.24  # inches: of a picture, and of one of its lines
PREFIXES = ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))
MOST_PANELS = 6


def pictures(report: Report) -> dict[str, Figure]:
    """The pictures that a report has numbers for, by name: shares of copy speed, speedups, and sizes."""
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
        for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            path = folder / f"{name}.{kind}"
            with mpl.rc_context(STYLE):
                figure.savefig(path, dpi=160, metadata=metadata, transparent=True, bbox_inches="tight")
            written.append(path)
    return tuple(written)


def shares(report: Report) -> Figure:
    """How fast each case runs, of a copy of the same bytes: a line of points a case."""
    cases, rivals = _cases(report), [who for who in _competitors(report) if who != COPY]
    figure = Figure(figsize=(WIDTH, 1 + LINE * len(cases)))
    axes = figure.subplots()
    for who in rivals:
        colour, marker = _looks(report, who)
        across, down = _speeds(report, who, COPY)
        above = 2 + (who == OURS)
        axes.scatter(across, down, s=30, color=colour, marker=marker, label=who, zorder=above)
    _against_one(axes, cases, "speed, of a copy of the same bytes")
    _finish(figure, axes, report)
    return figure


def speedups(report: Report) -> Figure:
    """How fast each case runs, of eager: a group of bars a case."""
    cases, rivals = _cases(report), [who for who in _competitors(report) if who not in (COPY, EAGER)]
    figure = Figure(figsize=(WIDTH, 1 + LINE * len(cases) * max(1, len(rivals) / 2)))
    axes = figure.subplots()
    height = 0.8 / max(1, len(rivals))
    for k, who in enumerate(rivals):
        colour, _ = _looks(report, who)
        across, down = _speeds(report, who, EAGER)
        places = [place - 0.4 + height * (k + 0.5) for place in down]
        axes.barh(places, across, height, color=colour, label=who)
    _against_one(axes, cases, "speed, of eager")
    _finish(figure, axes, report)
    return figure


def _speeds(report: Report, who: str, base: str) -> tuple[list[float], list[int]]:
    """A competitor's speeds, of another's, and the places of their cases."""
    found = [(report.of(who, case), place) for place, case in enumerate(_cases(report))]
    timed = [(row, place) for row, place in found if row and report.share(row, base) is not None]
    return [report.share(row, base) or 0.0 for row, _ in timed], [place for _, place in timed]


def _against_one(axes: Axes, cases: list[Case], label: str) -> None:
    axes.axvline(1.0, color=GREY, linewidth=1)
    axes.set(xlabel=label, ylim=(len(cases) - 0.5, -0.5))
    axes.set_xlim(left=0)
    axes.set_yticks(range(len(cases)), [_named(case, cases) for case in cases])


def sizes(report: Report) -> Figure:
    """Bytes a second over the size: a panel for each spec, pass and dtype, a line for each competitor."""
    groups = list(dict.fromkeys((c.name, c.what, c.dtype) for c in _cases(report)))[:MOST_PANELS]
    figure = Figure(figsize=(WIDTH, 0.6 + 2.6 * len(groups)))
    panels = figure.subplots(len(groups), 1, sharex=True, squeeze=False)[:, 0]
    for axes, group in zip(panels, groups, strict=True):
        for who in _competitors(report):
            colour, marker = _looks(report, who)
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
        axes.set(ylabel="GB/s", ylim=(0, None))
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: elements(value)))
    panels[-1].set_xlabel("elements")
    _finish(figure, panels[0], report)
    return figure


def elements(count: float) -> str:
    """A count of elements in binary prefixes: ``16 Mi``."""
    for size, prefix in PREFIXES:
        if count >= size:
            return f"{count / size:g} {prefix}"
    return f"{count:g}"


def _finish(figure: Figure, axes: Axes, report: Report) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.02), ncols=4, borderaxespad=0, handletextpad=0.3)
    words = [word for key, word in report.machine.items() if key != "date"]
    figure.text(0.99, 0, ", ".join(words), ha="right", va="top", fontsize=7)


def _cases(report: Report) -> list[Case]:
    return list(dict.fromkeys(row.case for row in report.rows))


def _competitors(report: Report) -> list[str]:
    return list(dict.fromkeys(row.who for row in report.rows))


def _looks(report: Report, who: str) -> tuple[str, str]:
    if who in LOOKS:
        return LOOKS[who]
    others = [name for name in _competitors(report) if name not in LOOKS]
    return OTHERS[others.index(who) % len(OTHERS)]


def _named(case: Case, cases: list[Case]) -> str:
    """A case by what tells it from the others."""
    words = [case.name]
    for key in ("what", "dtype", "shape"):
        if len({getattr(other, key) for other in cases}) > 1:
            value = getattr(case, key)
            words.append(elements(case.numel) if key == "shape" else value)
    return ", ".join(words)
