"""The command that writes a repository for the package `kernels`."""

from pathlib import Path

import click

from fusegen.cli.options import FOLDER, NAMED_SPECS, WHERE, specs_folder


@click.command()
@click.argument("folder", type=FOLDER, metavar="DIR")
@NAMED_SPECS
@click.option(
    "--version",
    "number",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="The major version of the interface; raise it when functions or layers change or go.",
)
@WHERE
def hub(folder: Path, specs: tuple[str, ...], number: int, output: Path) -> None:
    """Write functions and layers as a repository of Hugging Face.

    The package kernels loads them.

    The repository has the name of DIR. Files in DIR that this command did not write stay. README.md has the
    errors of the certificates beside the modules in --output.
    """
    from fusegen.cli.building import painted
    from fusegen.core import write
    from fusegen.language import library
    from fusegen.project import build
    from fusegen.tools.hub import Repository, planned

    every = [build.compiled_file(path) for path in library.find_all(specs, specs_folder())]
    changes = planned(Repository(folder, number, every, output))
    for change in changes:
        write.apply(change)
        if change.after is None:
            click.echo(f"{painted(change.kind)} {change.path}")
    if changes:
        kind = "new" if {change.kind for change in changes} == {"new"} else "changed"
        click.echo(f"{painted(kind)} {folder}: {', '.join(each.spec.name for each in every)}")
    else:
        click.echo(f"unchanged: {folder}")
