"""The command that writes modules, and the lines that commands print of files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusegen.cli.options import DTYPES, FOLDER, SEVERAL_SPECS, WHERE, specs_folder
from fusegen.errors import Span, TwoOfOneName

if TYPE_CHECKING:
    from fusegen.core.write import Change
    from fusegen.project.modules import Built
    from fusegen.project.outputs import Outputs

BINDINGS = ("stable", "pybind")
ONLY = "fusegen.dtype"  # of a command's context: the dtype of single files, or None


@click.command()
@SEVERAL_SPECS
@WHERE
@click.option(
    "--binding",
    type=click.Choice(BINDINGS),
    help="PyTorch's stable ABI (2.10 or newer) or pybind11 (2.0 or newer); by default that of the folder.",
)
@click.option(
    "--prune", is_flag=True, help="Remove the modules of the output folder that no known spec makes."
)
@click.option(
    "--package", is_flag=True, help="Write an __init__.py, which is kept up to date from then on."
)
@click.option(
    "--standalone",
    type=FOLDER,
    metavar="DIR",
    help="Write single files to DIR instead, which need no runtime beside them.",
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    expose_value=False,
    callback=lambda ctx, _, value: ctx.meta.update({ONLY: value}),
    help="Write single files for tensors of this dtype only, which are shorter; with --standalone.",
)
def build(
    specs: tuple[str, ...],
    output: Path,
    binding: str | None,
    prune: bool,
    package: bool,
    standalone: Path | None,
) -> None:
    """Write the modules of SPECs, or of all in specs/.

    The module of specs/FOLDER/NAME.yaml is FOLDER/NAME.py in the output folder, with the runtime of all
    modules in _runtime beside it. MANIFEST.toml lists the modules that were written. Warnings are of specs
    whose results may be less accurate than promised, or slow, and of specs that hide one of fusegen's.

    A SPEC is a path, or the name of a spec in specs/ or of one that comes with fusegen, as
    NAME or FOLDER/NAME.
    """
    from fusegen.core import config
    from fusegen.evidence.certify import known_exceptions
    from fusegen.language import library
    from fusegen.project import outputs

    paths = library.find_all(specs, specs_folder())
    dtype = click.get_current_context().meta.get(ONLY)
    binding = binding or config.current().binding
    if standalone:
        if prune or package:
            raise click.UsageError("--standalone excludes --prune and --package")
        _build_standalone(paths, standalone, binding, dtype)
        return
    if dtype:
        raise click.UsageError("--dtype is for --standalone")
    places = [output / f"{library.place(path)}.py" for path in paths]
    folder = outputs.opened(output, specs_folder()).bound(binding, places)
    built = _built(folder, paths, Also(package=package, prune=prune))
    tell(known_exceptions.told(built, dict(zip(places, paths, strict=True))))


@dataclass(frozen=True)
class Also:
    """The acts of a build besides writing modules."""

    package: bool = False  # it writes an __init__.py
    prune: bool = False  # it removes the modules that no known spec makes


def _built(folder: Outputs, paths: tuple[Path, ...], also: Also) -> Mapping[Path, Built]:
    """Write the modules of specs, and list them in the manifest."""
    from fusegen.codegen.printed import Binding
    from fusegen.core import access, manifest, write
    from fusegen.project import modules, outputs, package_folder

    access.require_writable(folder.folder / manifest.NAME)
    built = modules.built(paths, folder.folder, Binding(folder.binding))
    texts = {path: found.text for path, found in built.items()}
    folder.require_own(texts)
    gone = folder.removable(texts) if also.prune else ()
    if also.package or package_folder.is_package(folder):
        package_folder.changed(folder, texts, gone)  # which refuses what it does before anything is written
    changes, runtime = write.changes(texts), folder.runtime(texts, gone)
    make(changes)
    _make_runtime(runtime)
    same = len(texts) - len(changes)
    if same:
        click.echo(f"unchanged: {same} module{'s' if same > 1 else ''}")
    make(map(write.removal, gone))
    written = outputs.opened(folder.folder, folder.specs).bound(folder.binding, texts)
    if also.package or package_folder.is_package(folder):
        make(package_folder.changed(written, texts))
    for change in written.manifest(texts, paths, {path: found.kernels for path, found in built.items()}):
        write.apply(change)
    tell(written.complaints(texts))
    return built


def make(changes: Iterable[Change]) -> None:
    """Write and remove files, and print a line for each."""
    from fusegen.core import write

    for change in changes:
        write.apply(change)
        click.echo(f"{painted(change.kind)} {change.path}")


def _make_runtime(changes: tuple[Change, ...]) -> None:
    """Write and remove the files of a runtime, and print one line of them."""
    from fusegen.codegen.runtime_text import FOLDER
    from fusegen.core import write

    if changes:
        place = next(folder for folder in changes[0].path.parents if folder.name == FOLDER)
        click.echo(f"{painted('changed' if place.exists() else 'new')} {place}")
    for change in changes:
        write.apply(change)


def tell(sentences: Iterable[str | None]) -> None:
    """Print sentences to the standard error, without those that are None."""
    for sentence in filter(None, sentences):
        click.echo(sentence, err=True)


def _build_standalone(
    paths: tuple[Path, ...], folder: Path, binding: str | None, dtype: str | None
) -> None:
    """Write the modules of some specs in one file each; the folder gets no manifest, no subfolders."""
    from fusegen.codegen.printed import Binding
    from fusegen.core import write
    from fusegen.project import modules, outputs, standalone

    bound = Binding(binding or BINDINGS[0])
    require_names(paths, folder)
    built = modules.built(paths, folder, bound)
    dtypes = (dtype,) if dtype else DTYPES
    texts = {
        folder / path.name: standalone.text(one.text, bound.value, dtypes, one.apart)
        for path, one in built.items()
    }
    outputs.opened(folder, specs_folder()).require_own(texts)
    make(write.changes(texts))
    for one in built.values():
        tell(one.remarks)


def require_names(paths: tuple[Path, ...], folder: Path) -> None:
    """Refuse specs of one name in several folders, whose files would be the same.

    Raises:
        TwoOfOneName: two of them have the same name.
    """
    first: dict[str, Path] = {}
    for path in paths:
        if first.setdefault(path.stem, path) != path:
            where, module = first[path.stem].as_posix(), (folder / f"{path.stem}.py").as_posix()
            raise TwoOfOneName(Span(path.as_posix()), name=path.stem, first=where, module=module)


def painted(kind: str) -> str:
    """Return a kind of change in its colour."""
    colours = {"new": "green", "changed": "yellow", "removed": "red"}
    return click.style(f"{kind:8}", fg=colours[kind])  # click drops colours off a terminal
