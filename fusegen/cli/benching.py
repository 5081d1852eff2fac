"""The command that measures the speed of modules."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fusegen.cli.options import (
    DEVICE,
    DTYPE,
    DTYPES,
    FILE,
    FOLDER,
    SEVERAL_SPECS,
    WHERE,
    devices,
    seconds_option,
    specs_folder,
)
from fusegen.cli.output_files import save
from fusegen.errors import BadShape, Span

if TYPE_CHECKING:
    from fusegen.evidence.bench.measurements import Report, Row
    from fusegen.evidence.bench.session import BenchOptions
    from fusegen.project.build import AnyCompiled


@click.command()
@SEVERAL_SPECS
@WHERE
@DEVICE
@DTYPE
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NxM",
    help="The shape of the first input, which the others follow; repeatable.",
)
@click.option(
    "--sweep",
    is_flag=True,
    help="Measure sizes from 1 Ki to 1 Gi elements, as far as they fit into memory.",
)
@click.option("--backward", is_flag=True, help="Measure backward passes, too.")
@click.option("--training", is_flag=True, help="Measure training steps, too: forward, then backward.")
@click.option("--suite", is_flag=True, help="Measure all dtypes, and backward passes.")
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out.")
@click.option(
    "--against", multiple=True, metavar="FILE:CLASS", help="Measure another module, too; repeatable."
)
@seconds_option(2.0, "The time for the turns of a case.")
@click.option(
    "--json",
    "as_json",
    type=FILE,
    help="Write the measurements as JSON lines: the machine, then a line for each case.",
)
@click.option("--csv", "as_csv", type=FILE, help="Write the measurements as CSV.")
@click.option("--markdown", "as_markdown", type=FILE, help="Write the printed table in Markdown.")
@click.option("--plot", "folder", type=FOLDER, help="Write pictures to this folder, as SVG and PNG.")
@click.option("--history", type=FILE, help="Append the same JSON lines to this file.")
@click.option(
    "--compare",
    "before",
    type=FILE,
    metavar="OLD.jsonl",
    help="Report cases that are slower than in the last run of this file.",
)
def bench(specs: tuple[str, ...], **given: Any) -> None:
    """Benchmark modules beside eager, torch.compile and a copy.

    The copy is of the same bytes.

    Every competitor is checked first, and not timed if it is wrong. The competitors of a case run in turns;
    times are medians with the spread of the middle 80 %. Calls on small tensors are timed by wall clock and
    in a CUDA graph, too.
    """
    from fusegen.core import access
    from fusegen.evidence.bench import measurements, session
    from fusegen.project import build

    arguments = BenchArguments(**given)
    access.require_writable(*arguments.files())
    old = measurements.from_json_lines(arguments.before) if arguments.before else None
    options = _options(arguments)
    compiled = build.alone(specs, specs_folder())
    rows = _watched(compiled, options)
    report = measurements.Report(session.machine(options.device), rows)
    _print(report)
    _write(report, arguments)
    for sentence in measurements.noisy(report):
        click.echo(sentence, err=True)
    wrong = [row for row in report.rows if row.ours and row.said]
    slower = list(measurements.slower(old, report)) if old else []
    for sentence in slower:
        click.echo(f"slower: {sentence}", err=True)
    if wrong or slower:
        sys.exit(1)


@dataclass(frozen=True)
class BenchArguments:
    """The arguments of `bench`, as its help describes them."""

    output: Path
    device: str | None
    dtypes: tuple[str, ...]
    shapes: tuple[str, ...]
    sweep: bool
    backward: bool
    training: bool
    suite: bool
    no_compile: bool
    against: tuple[str, ...]
    seconds: float
    as_json: Path | None
    as_csv: Path | None
    as_markdown: Path | None
    folder: Path | None
    history: Path | None
    before: Path | None

    def files(self) -> list[Path]:
        """Return the files that are written, of pictures one."""
        pictures = self.folder / "speeds.svg" if self.folder else None
        every = (self.as_json, self.as_csv, self.as_markdown, self.history, pictures)
        return [path for path in every if path]


def _options(arguments: BenchArguments) -> BenchOptions:
    from fusegen.evidence.bench import session

    device = devices(arguments.device)[-1]
    backward = arguments.backward or arguments.suite
    return session.BenchOptions(
        arguments.output,
        device,
        DTYPES if arguments.suite and not arguments.dtypes else arguments.dtypes,
        session.sizes(device) if arguments.sweep else tuple(map(_shape, arguments.shapes)),
        ("forward", *["backward"] * backward, *["training"] * arguments.training),
        not arguments.no_compile,
        arguments.against,
        arguments.seconds,
    )


def _write(report: Report, arguments: BenchArguments) -> None:
    from fusegen.evidence.bench import measurements

    texts = (
        (arguments.as_json, measurements.as_json_lines, "w"),
        (arguments.as_csv, measurements.as_csv, "w"),
        (arguments.as_markdown, measurements.as_markdown, "w"),
        (arguments.history, measurements.as_json_lines, "a"),
    )
    for path, text, mode in texts:
        if path:
            save(path, text(report), mode)
    if arguments.folder:
        from fusegen.evidence.bench import plots

        for path in plots.save(report, arguments.folder):
            click.echo(path)


def _shape(text: str) -> tuple[int, ...]:
    sizes = tuple(int(part) for part in text.split("x") if part.isdecimal())
    if len(sizes) != text.count("x") + 1 or 0 in sizes:
        raise BadShape(Span("--shape"), shape=text)
    return sizes


def _watched(compiled: tuple[AnyCompiled, ...], options: BenchOptions) -> tuple[Row, ...]:
    """Return the measurements of some specs; a terminal shows the time left."""
    from fusegen.cli.progress_bar import bar
    from fusegen.evidence.bench import session

    with bar() as progress:
        task = progress.add_task("building", total=None)

        class Bar:
            def begin(self, title: str, cases: int) -> None:
                progress.update(task, description=title, total=cases)

        rows: list[Row] = []
        for some in session.measured(compiled, options, Bar()):
            rows += some
            progress.advance(task)
    return tuple(rows)


def _print(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    from fusegen.evidence.bench import measurements

    heads = measurements.columns(report)
    table = Table(title=", ".join(report.machine.values()), box=None)
    for head in heads:
        left = head in ("spec", "pass", "dtype", "shape", "by", "")
        shown = "\n".join(textwrap.wrap(head, 14))  # the cells are shorter than the heads
        table.add_column(shown, justify="left" if left else "right", no_wrap=head != "")
    last = None
    for row in report.rows:
        cells = measurements.shown(report, row)
        if row.case == last:
            cells |= dict.fromkeys(("spec", "pass", "dtype", "shape"), "")
        last = row.case
        table.add_row(*(cells[head] for head in heads), style="bold" if row.ours else None)
    Console(markup=False, width=None if sys.stdout.isatty() else 160).print(table)
