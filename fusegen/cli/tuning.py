"""The command that finds launch configurations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusegen.cli.options import FILE, SEVERAL_SPECS, seconds_option, specs_folder
from fusegen.cli.output_files import save

if TYPE_CHECKING:
    from fusegen.core.launch import Table
    from fusegen.evidence.bench.launch_rows import Trial


@click.command()
@SEVERAL_SPECS
@click.option(
    "--table",
    "path",
    default=lambda: specs_folder() / "launch.toml",
    type=FILE,
    show_default="launch.toml beside the specs",
    help="The launch table to write.",
)
@click.option(
    "--classes", is_flag=True, help="Write rows for classes of costs, which hold for other formulas, too."
)
@seconds_option(0.15, "The time for a kernel at one size.")
def tune(specs: tuple[str, ...], path: Path, classes: bool, seconds: float) -> None:
    """Find the fastest launch configurations on this GPU, by size.

    Every kernel of each SPEC is timed with several numbers of threads in a block, vectors in a thread and
    blocks of L2 prefetch distance. A configuration that is faster by more than the noise is written for its
    kernel. With --classes the best mean of a class of costs is written, and a row for a kernel only if it
    loses much by that.
    """
    from fusegen.cli.progress_bar import bar
    from fusegen.core import access, launch
    from fusegen.evidence.bench import launch_rows, launch_tuning, session
    from fusegen.language import library
    from fusegen.project import build

    access.require_writable(path)
    chip = launch_tuning.chip()
    compiled = tuple(build.compiled_file(found) for found in library.find_all(specs, specs_folder()))
    found: list[Trial] = []
    with bar() as progress:
        task = progress.add_task("", total=len(compiled))
        for one in compiled:
            progress.update(task, description=one.spec.name)
            found += launch_tuning.trials(one, chip, seconds)
            progress.advance(task)
    base = launch.read(path) if path.is_file() else launch.Table({}, {})
    machine = session.machine("cuda")
    source = f"{machine['device']}, {machine['torch']}"
    in_force = build.launches(compiled[0])
    table = launch_rows.tuned(tuple(found), chip, in_force, base, source, classes=classes)
    _print_trials(tuple(found), table.over(in_force), chip)
    save(path, launch.text(table), "w")
    click.echo(f"wrote {path}; python -m fusegen build puts it into the modules")


def _print_trials(found: tuple[Trial, ...], table: Table, chip: int) -> None:
    from rich.console import Console
    from rich.table import Table as Grid

    from fusegen.evidence.bench import launch_rows, launch_tuning

    grid = Grid(title="threads x vectors + blocks of prefetch distance, and the gain of a change", box=None)
    for head in (
        "kernel",
        "bits",
        *(f"{kib} KiB" if kib < 1024 else f"{kib // 1024} MiB" for kib in launch_tuning.SIZES),
    ):
        grid.add_column(head, no_wrap=True)
    for (kernel, bits), several in launch_rows.by_kernel(found).items():
        cells = []
        for trial in several:
            new = launch_rows.at(table.at(chip, kernel, trial.cost, bits), trial.kib)
            gain = f" {trial.gain(new):+.1%}" if new != trial.now and new in trial.times else ""
            cells.append(f"{new}{gain}")
        grid.add_row(kernel, str(bits), *cells)
    Console(markup=False, width=None if sys.stdout.isatty() else 160).print(grid)
