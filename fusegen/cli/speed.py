"""The verbs that measure how fast modules are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusegen.cli.options import DEVICE, DTYPE, DTYPES, SPECS, WHERE, devices
from fusegen.errors import BadShape, Span

if TYPE_CHECKING:
    from fusegen.bench.results import Report, Row
    from fusegen.bench.rows import Trial
    from fusegen.bench.session import Order
    from fusegen.launch import Table
    from fusegen.pipeline import Compiled

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("specs", nargs=-1, metavar="[SPEC]...")
@WHERE
@DEVICE
@DTYPE
@click.option("--shape", "shapes", multiple=True, metavar="NxM", help="Of each input; repeatable.")
@click.option("--sweep", is_flag=True, help="Sizes from 1 Ki to 1 Gi elements, as far as they fit.")
@click.option("--backward", is_flag=True, help="The gradient, too.")
@click.option("--suite", is_flag=True, help="All dtypes, and the gradient.")
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out.")
@click.option("--against", multiple=True, metavar="FILE:CLASS", help="Another module; repeatable.")
@click.option("--seconds", default=2.0, help="How long the turns of a case may take.")
@click.option("--json", "as_json", type=_FILE, help="Write all that was measured.")
@click.option("--csv", "as_csv", type=_FILE, help="The same for a spreadsheet.")
@click.option("--markdown", "as_markdown", type=_FILE, help="The table that is printed, for a README.")
@click.option("--plot", "folder", type=_FOLDER, help="Write pictures there, as SVG and PNG.")
@click.option("--history", type=_FILE, help="Add all that was measured to a file, a line a run.")
@click.option("--compare", "before", type=_FILE, metavar="OLD.json", help="Tell what has become slower.")
def bench(
    specs: tuple[str, ...], output: Path, device: str | None, dtypes: tuple[str, ...],
    shapes: tuple[str, ...], sweep: bool, backward: bool, suite: bool, no_compile: bool,
    against: tuple[str, ...], seconds: float, as_json: Path | None, as_csv: Path | None,
    as_markdown: Path | None, folder: Path | None, history: Path | None, before: Path | None,
) -> None:  # fmt: skip
    """Time modules beside eager, torch.compile, a copy of the same bytes, and others.

    Every competitor is checked first, and not timed if it is wrong. Times are medians of runs that take
    turns, with the spread of the middle 80 %; small tensors are timed by the call and in a CUDA graph, too.
    """
    from fusegen import access, build, library
    from fusegen.bench import results, session

    pictures = folder / "speeds.svg" if folder else None
    access.require_writable(*filter(None, (as_json, as_csv, as_markdown, history, pictures)))
    old = results.from_json(before) if before else None
    where = devices(device)[-1]
    order = session.Order(
        output,
        where,
        DTYPES if suite and not dtypes else dtypes,
        session.sizes(where) if sweep else tuple(map(_shape, shapes)),
        ("forward", "backward")[: 1 + (backward or suite)],
        not no_compile,
        against,
        seconds,
    )
    compiled = tuple(build.compiled_file(path) for path in library.find_all(specs, SPECS))
    rows = _watched(compiled, order)
    report = results.Report(session.machine(where), rows)
    _print(report)
    for path, text in (
        (as_json, results.as_json), (as_csv, results.as_csv), (as_markdown, results.as_markdown),
    ):  # fmt: skip
        if path:
            _save(path, text(report), "w")
    if history:
        _save(history, results.as_line(report), "a")
    if folder:
        from fusegen.bench import plots

        for path in plots.save(report, folder):
            click.echo(path)
    for sentence in results.noisy(report):
        click.echo(sentence, err=True)
    wrong = [row for row in report.rows if row.ours and row.said]
    slower = list(results.slower(old, report)) if old else []
    for sentence in slower:
        click.echo(f"slower: {sentence}", err=True)
    if wrong or slower:
        sys.exit(1)


@click.command()
@click.argument("specs", nargs=-1, metavar="[SPEC]...")
@click.option(
    "--table",
    "path",
    default=SPECS / "launch.toml",
    type=_FILE,
    show_default=True,
    help="Where the rows go.",
)
@click.option(
    "--classes", is_flag=True, help="Write rows for classes of costs, which other formulas take too."
)
@click.option("--seconds", default=0.15, show_default=True, help="For a kernel at one size.")
def tune(specs: tuple[str, ...], path: Path, classes: bool, seconds: float) -> None:
    """Find the fastest launches on this GPU, by size.

    Threads of a block, vectors of a thread and how far ahead a block asks are tried on every kernel of each
    SPEC. What is faster by more than the noise is written for this kernel; with --classes, what is best for
    a class's kernels on the mean, and for a kernel only where it loses much by that.
    """
    from fusegen import access, build, launch, library
    from fusegen.bench import rows, session, tuning
    from fusegen.cli.progress import bar

    access.require_writable(path)
    chip = tuning.chip()
    compiled = tuple(build.compiled_file(found) for found in library.find_all(specs, SPECS))
    found: list[Trial] = []
    with bar() as progress:
        task = progress.add_task("", total=len(compiled))
        for one in compiled:
            progress.update(task, description=one.spec.name)
            found += tuning.trials(one, chip, seconds)
            progress.advance(task)
    base = launch.read(path) if path.is_file() else launch.Table({}, {})
    machine = session.machine("cuda")
    source = f"{machine['device']}, {machine['torch']}"
    in_force = build.launches(compiled[0])
    table = rows.tuned(tuple(found), chip, in_force, base, source, classes=classes)
    _print_trials(tuple(found), table.over(in_force), chip)
    _save(path, launch.text(table), "w")
    click.echo(f"wrote {path}; python -m fusegen build puts it into the modules")


def _save(path: Path, text: str, mode: str) -> None:
    """Write or append to a file, in new folders if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode, encoding="utf-8") as file:
        file.write(text)


def _print_trials(found: tuple[Trial, ...], table: Table, chip: int) -> None:
    from rich.console import Console
    from rich.table import Table as Grid

    from fusegen.bench import rows, tuning

    grid = Grid(title="threads x vectors + blocks ahead, and what a change gains", box=None)
    for head in (
        "kernel",
        "bits",
        *(f"{kib} KiB" if kib < 1024 else f"{kib // 1024} MiB" for kib in tuning.SIZES),
    ):
        grid.add_column(head, no_wrap=True)
    for (kernel, bits), several in rows.by_kernel(found).items():
        cells = []
        for trial in several:
            new = rows.at(table.at(chip, kernel, trial.cost, bits), trial.kib)
            gain = f" {trial.gain(new):+.1%}" if new != trial.now and new in trial.times else ""
            cells.append(f"{new}{gain}")
        grid.add_row(kernel, str(bits), *cells)
    Console(markup=False, width=None if sys.stdout.isatty() else 160).print(grid)


def _shape(text: str) -> tuple[int, ...]:
    sizes = tuple(int(part) for part in text.split("x") if part.isdecimal())
    if len(sizes) != text.count("x") + 1 or 0 in sizes:
        raise BadShape(Span("--shape"), shape=text)
    return sizes


def _watched(compiled: tuple[Compiled, ...], order: Order) -> tuple[Row, ...]:
    """What is measured, with the time left on a terminal."""
    from fusegen.bench import session
    from fusegen.cli.progress import bar

    with bar() as progress:
        task = progress.add_task("building", total=None)

        class Watch:
            def begin(self, title: str, cases: int) -> None:
                progress.update(task, description=title, total=cases)

        rows: list[Row] = []
        for some in session.measured(compiled, order, Watch()):
            rows += some
            progress.advance(task)
    return tuple(rows)


def _print(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    from fusegen.bench import results

    heads = results.columns(report)
    table = Table(title=", ".join(report.machine.values()), box=None)
    for head in heads:
        left = head in ("spec", "pass", "dtype", "shape", "by", "")
        table.add_column(head, justify="left" if left else "right", no_wrap=head != "")
    last = None
    for row in report.rows:
        cells = results.shown(report, row)
        if row.case == last:
            cells |= dict.fromkeys(("spec", "pass", "dtype", "shape"), "")
        last = row.case
        table.add_row(*(cells[head] for head in heads), style="bold" if row.ours else None)
    Console(markup=False, width=None if sys.stdout.isatty() else 160).print(table)
