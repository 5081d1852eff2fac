"""The command that compares generated files with their specs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusegen.cli.options import WHERE, schema_file, specs_folder
from fusegen.cli.records import JSON, Record, print_records, record
from fusegen.errors import counted

if TYPE_CHECKING:
    from fusegen.spec import Spec

REFERENCE_LIBRARIES = ("torch", "python-flint")  # which comparisons of references with formulas need
REMEDY = "run 'python -m fusegen build' (and 'schema'), read the diff, commit it"


@click.command()
@WHERE
@JSON
def check(output: Path, as_json: bool) -> None:
    """Compare generated/ with what the specs say, and specs/schema.json with the language.

    Stale certificates are reported, and the number of modules without one; those are no differences. With
    PyTorch and python-flint references are compared with formulas, too.
    """
    found: Record = {}
    for found in _found(output):
        if as_json:
            print_records([found])
        else:
            TEXTS[found["kind"]](found)
    if found["differences"] or found["complaints"]:
        sys.exit(1)


def _found(output: Path) -> Iterator[Record]:
    """The differences and complaints, or without any the notes; then a summary."""
    from fusegen import library, modules, outputs, package, write
    from fusegen.render import Binding
    from fusegen.schema import schema_text

    specs = library.find_all((), specs_folder())
    folder = outputs.opened(output, specs_folder())
    built = modules.built(specs, output, Binding(folder.binding))
    texts = {path: found.text for path, found in built.items()}
    differences = [*write.changes(texts), *folder.runtime(), *folder.manifest(texts, specs)]
    if package.is_package(folder):
        differences += package.changed(folder, texts)
    if schema_file().exists():
        differences += write.changes({schema_file(): schema_text()})
    for change in differences:
        yield record("difference", file=str(change.path), change=change.kind, diff=change.diff())
    complaints = folder.complaints(texts)
    yield from (record("complaint", text=text) for text in complaints)
    if not differences and not complaints:
        loaded = {path: library.load(path) for path in specs}
        yield from _certificates(dict(zip(texts, loaded.values(), strict=True)), output)
        for path in folder.uncertified():
            text = f"{path}: there is no module of this certificate; delete it"
            yield record("certificate", text=text)
        yield from _references(dict(zip(loaded, texts.values(), strict=True)), loaded, output)
    yield record(
        "summary",
        modules=len(texts),
        differences=len(differences),
        complaints=len(complaints),
        uncertified=_uncertified(texts),
    )


def _certificates(specs: Mapping[Path, Spec], output: Path) -> Iterator[Record]:
    """The certificates that prove nothing about their module.

    Args:
        specs: by the files of their modules.
        output: the folder of the modules.
    """
    from fusegen.certify import state

    for path, spec in specs.items():
        name = path.relative_to(output).with_suffix("").as_posix()
        for text in state.sentences(path, name, state.states(path, state.claim(spec))):
            yield record("certificate", text=text)


def _uncertified(modules: Iterable[Path]) -> int:
    """The number of modules without a certificate."""
    from fusegen.certify import certificate

    return sum(not certificate.path_of(path).exists() for path in modules)


def _references(texts: Mapping[Path, str], specs: Mapping[Path, Spec], output: Path) -> Iterator[Record]:
    """Compare references that only PyTorch can evaluate, once, or say that it is missing.

    Args:
        texts: the modules, by the files of their specs.
        specs: by their files.
        output: the folder of the modules.
    """
    from fusegen import cache
    from fusegen.agreement import needs_torch

    pending = {path: text for path, text in texts.items() if needs_torch(specs[path])}
    missing = [name for name in ("torch", "flint") if find_spec(name) is None]
    if pending and missing:
        number, needed = counted(len(pending), "reference"), " and ".join(missing)
        yield record("reference", text=f"{number} not compared: this needs {needed}")
    elif pending:
        key = cache.key("references", *map(metadata.version, REFERENCE_LIBRARIES), *pending.values())
        if not cache.recall(key):
            from fusegen import build
            from fusegen.certify import reference

            reference.require_all([build.compiled_file(path) for path in pending], output)
            cache.remember(key, True)


def _print_note(found: Record) -> None:
    click.echo(found["text"], err=True)


def _print_summary(found: Record) -> None:
    count = found["differences"] + found["complaints"]
    if found["differences"]:
        click.echo(f"{counted(count, 'file')} differ{'s' if count == 1 else ''}; {REMEDY}", err=True)
    elif not count:
        bare = found["uncertified"]
        told = f", {bare} of them without a certificate" if bare else ""
        click.echo(f"{found['modules']} modules are what their specs say{told}")


TEXTS: dict[str, Callable[[Record], None]] = {  # by kind, the printing of a record as text
    "difference": lambda found: click.echo(found["diff"], nl=False),
    **dict.fromkeys(("complaint", "certificate", "reference"), _print_note),
    "summary": _print_summary,
}
