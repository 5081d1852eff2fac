"""The command that prints tables for README.md and docs/."""

from pathlib import Path

import click

from fusegen.cli.options import DEVICE, FILE, FOLDER, SEVERAL_SPECS, WHERE, devices, specs_folder


@click.group()
def report() -> None:
    """Print tables, and draw pictures, of accuracy and speed.

    Tables are Markdown, of certificates and measurements.
    """


@report.command()
@WHERE
def accuracy(output: Path) -> None:
    """Print the accuracy of functions, and broken promises.

    Certificates have both, by device.
    """
    from fusegen.evidence.report import accuracy

    tables = [accuracy.table(output, device) for device in accuracy.NAMES]
    for lines in (*tables, accuracy.within(output), accuracy.exceptions(output)):
        click.echo("\n".join(lines) + "\n")


@report.command()
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
def speed(files: tuple[Path, ...]) -> None:
    """Print the table of speeds of each FILE.

    `bench --json` wrote it.
    """
    from fusegen.evidence.bench import measurements
    from fusegen.evidence.report import speed

    for file in files:
        click.echo("\n".join(speed.table(measurements.from_json_lines(file))) + "\n")


@report.command()
@click.argument("file", type=FILE)
@click.argument("folder", type=FOLDER)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def pictures(file: Path, folder: Path, names: tuple[str, ...]) -> None:
    """Write to FOLDER the pictures of speeds of a FILE.

    `bench --json` wrote the file; pictures are SVG and PNG.

    If specs are named, the pictures show these only.
    """
    from fusegen.core import access
    from fusegen.evidence.bench import measurements, plots

    access.require_writable(folder / "speeds.svg")
    report = measurements.from_json_lines(file)
    for path in plots.save(measurements.of_specs(report, names) if names else report, folder):
        click.echo(path)


@report.command()
@SEVERAL_SPECS
@DEVICE
@click.option("--count", default=2**22, show_default=True, help="The number of random inputs of each kind.")
def eager(specs: tuple[str, ...], device: str | None, count: int) -> None:
    """Print where modules differ from PyTorch's bits.

    They are built of specs with `numerics: eager`.
    """
    from fusegen.evidence.report import eager

    for line in eager.page(specs, specs_folder(), devices(device)[-1], count):
        click.echo(line)


@report.command()
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
def predicted(files: tuple[Path, ...]) -> None:
    """Print predicted speeds of kernels beside measured ones.

    `bench --json` wrote each FILE.
    """
    from fusegen.evidence.bench import measurements
    from fusegen.evidence.report import predicted

    for line in predicted.page(tuple(map(measurements.from_json_lines, files)), specs_folder()):
        click.echo(line)
