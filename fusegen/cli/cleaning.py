"""The command that removes compiled kernels."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from fusegen.cli.options import WHERE, specs_folder
from fusegen.core.timing import LOG


@click.command()
@click.option(
    "--all", "every", is_flag=True, help="Remove every library of the folder of builds, of any project."
)
@WHERE
def clean(every: bool, output: Path) -> None:
    """Remove compiled kernels that the modules here do not load.

    They are built again when needed.

    The folder of builds is TORCH_EXTENSIONS_DIR/fusegen, or ~/.cache/torch_extensions/fusegen. Libraries of
    modules that are not in the output folder stay, since other projects may use them, unless --all is
    given. Of _libraries in the output folder, what `compile` would replace is removed. Links are left.
    """
    from fusegen.project import library_folder, outputs, stale

    folder = library_folder.build_folder()
    libraries = output / library_folder.LIBRARIES
    present = [each for each in (folder, libraries) if each.is_dir()]
    for each in present:
        stale.require_own(each)
    if not present:
        click.echo(f"{folder}: there is no such folder, and nothing to remove")
    if every and folder in present:  # which needs neither torch nor the modules
        _remove(folder, stale.every_build(folder).outdated)
        present.remove(folder)
    if present:
        loads = stale.loaded(outputs.opened(output, specs_folder()))
    if folder in present:
        found = stale.of_builds(folder, loads.built)
        _remove(folder, found.outdated)
        number = found.others
        if number:
            what = "library of another module stays" if number == 1 else "libraries of other modules stay"
            click.echo(f"{number} {what}; --all removes them, too")
    if libraries in present:
        _remove(libraries, stale.of_libraries(libraries, loads.ahead).outdated)


def _remove(folder: Path, groups: Iterable[tuple[Path, ...]]) -> None:
    """Remove the files of some libraries, and print their number and size; --verbose prints each."""
    from fusegen.core.access import refused

    number = freed = 0
    for files in groups:
        for path in files:
            try:
                freed += _size(path)
                _REMOVAL[path.is_dir()](path)
            except OSError as error:
                raise refused(error, path, "removed") from None
            LOG.info("removed  %s", str(path))
        number += 1
    word = "library" if number == 1 else "libraries"
    click.echo(f"removed  {number} {word} from {folder}, {freed:,} bytes freed")


_REMOVAL: dict[bool, Callable[[Path], None]] = {False: Path.unlink, True: shutil.rmtree}


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all below a folder; links count as themselves."""
    below = path.rglob("*") if path.is_dir() else ()
    return sum(each.lstat().st_size for each in (path, *below))
