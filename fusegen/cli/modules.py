"""The verbs that make modules, and tell what there is."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusegen.cli.building import painted, tell
from fusegen.cli.options import FILE, SPECS, WHERE
from fusegen.errors import counted

if TYPE_CHECKING:
    from fusegen.spec import Spec

Row = Mapping[str, str | Sequence[str] | Mapping[str, str]]  # by column
SCHEMA = SPECS / "schema.json"
JUDGES = ("torch", "python-flint")  # the libraries that compare references with formulas
CURRENT = "current"
OUTDATED = {"new": "not built", "changed": "out of date"}  # by what a build would do
FORMATS = ("text", "markdown", "latex")
STAGES = ("parse", "compose", "derive", "simplify", "ir", "facts", "plan", "cuda", "cpu", "module")


@click.command()
@WHERE
def check(output: Path) -> None:
    """Compare generated/ with what the specs say, and specs/schema.json with the language.

    It also tells of stale certificates, and how many modules have none; those are no differences. With
    PyTorch and python-flint it compares references with formulas, too.
    """
    from fusegen import library, modules, outputs, write
    from fusegen.agreement import needs_torch
    from fusegen.render import Binding
    from fusegen.schema import schema_text

    specs = library.find_all((), SPECS)
    folder = outputs.opened(output, SPECS)
    built = modules.built(specs, output, Binding(folder.binding))
    texts = {path: found.text for path, found in built.items()}
    differences = [*write.changes(texts), *folder.runtime(), *folder.manifest(texts, specs)]
    if SCHEMA.exists():
        differences += write.changes({SCHEMA: schema_text()})
    for change in differences:
        click.echo(change.diff(), nl=False)
    complaints = folder.complaints(texts)
    tell(complaints)
    count = len(differences) + len(complaints)
    if differences:
        remedy = "run 'python -m fusegen build' (and 'schema'), read the diff, commit it"
        click.echo(f"{counted(count, 'file')} differ{'s' if count == 1 else ''}; {remedy}", err=True)
    if count:
        sys.exit(1)
    loaded = {path: library.load(path) for path in specs}
    bare = _tell_certificates(dict(zip(texts, loaded.values(), strict=True)), output)
    tell(f"{path}: there is no module of this certificate; delete it" for path in folder.uncertified())
    pending = {
        path: text
        for (path, spec), text in zip(loaded.items(), texts.values(), strict=True)
        if needs_torch(spec)
    }
    _compare_references(pending, output)
    told = f", {bare} of them without a certificate" if bare else ""
    click.echo(f"{len(texts)} modules are what their specs say{told}")


def _tell_certificates(specs: Mapping[Path, Spec], output: Path) -> int:
    """Tell of certificates that prove nothing about their module, and count the modules without one.

    Args:
        specs: by the files of their modules.
        output: the folder of the modules.
    """
    from fusegen.certify import certificate, state

    for path, spec in specs.items():
        name = path.relative_to(output).with_suffix("").as_posix()
        tell(state.sentences(path, name, state.states(path, state.claim(spec))))
    return sum(not certificate.path_of(path).exists() for path in specs)


def _compare_references(pending: Mapping[Path, str], output: Path) -> None:
    """Compare references that only PyTorch can evaluate, once, or say that it is missing.

    Args:
        pending: the texts of their modules, by the files of their specs.
        output: the folder of the modules.
    """
    from fusegen import cache

    missing = [name for name in ("torch", "flint") if find_spec(name) is None]
    if pending and missing:
        number, needed = counted(len(pending), "reference"), " and ".join(missing)
        click.echo(f"{number} not compared: this needs {needed}", err=True)
    elif pending:
        key = cache.key("references", *map(metadata.version, JUDGES), *pending.values())
        if not cache.recall(key):
            from fusegen import build
            from fusegen.certify import reference

            reference.require_all([build.compiled_file(path) for path in pending], output)
            cache.remember(key, True)


@click.command("list")
@WHERE
@click.option("--functions", is_flag=True, help="Show the functions of formulas instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: a list of objects.")
def list_(output: Path, functions: bool, as_json: bool) -> None:
    """Show every spec: its formula, its dtypes, and the states of its module and of its certificate.

    A certificate is ok by device, or shows what it exceeds: "cuda float32 5.3 ulp > 4".
    """
    from fusegen.printers import notation

    named = (dict(zip(("function", "value"), row, strict=True)) for row in notation.functions())
    found: list[Row] = [*(named if functions else _specs(output))]
    if as_json:
        click.echo(json.dumps(found, indent=1, ensure_ascii=False))
    else:
        _table(found)


def _specs(output: Path) -> Iterator[Row]:
    """A row for each spec."""
    from fusegen import library, manifest, modules, write
    from fusegen.certify import state
    from fusegen.printers.notation import notation
    from fusegen.render import Binding

    specs = library.find_all((), SPECS)
    built = modules.built(specs, output, Binding(manifest.read(output).binding))
    texts = {path: found.text for path, found in built.items()}
    states = {change.path: OUTDATED[change.kind] for change in write.changes(texts)}
    for path, of in zip(texts, specs, strict=True):
        spec, name = library.load(of), library.place(of).as_posix()
        yield {
            "spec": name,
            "formula": notation(spec),
            "dtypes": spec.dtypes,
            "module": states.get(path, CURRENT),
            "certificate": state.states(path, state.claim(spec)),
        }


def _table(rows: Sequence[Row]) -> None:
    """Print rows: as a table in a terminal, else separated by tabs and without heads."""
    cells = [tuple(map(_cell, row.values())) for row in rows]
    if not sys.stdout.isatty():
        for row in cells:
            click.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*(rows[0] if rows else ()), box=None)
    for row, of in zip(cells, rows, strict=True):
        table.add_row(*row, style=None if of.get("module", CURRENT) == CURRENT else "yellow")
    Console(markup=False).print(table)


def _cell(value: str | Sequence[str] | Mapping[str, str]) -> str:
    """A value of a row as text."""
    match value:
        case str():
            return value
        case Mapping():
            return ", ".join(map(" ".join, value.items())) or "none"
    return ", ".join(value)


@click.command()
@click.argument("spec")
@click.option("--stage", type=click.Choice(STAGES), default="module", help="Where to stop.")
def show(spec: str, stage: str) -> None:
    """Print what a stage of the compiler makes of SPEC."""
    from fusegen import library
    from fusegen.show import stage as shown

    click.echo(shown(library.find(spec, SPECS), stage), nl=False)


@click.command()
@click.argument("spec")
@WHERE
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", help="How to write it.")
@click.option(
    "--plot",
    "picture",
    type=FILE,
    metavar="FILE",
    help="Draw the function, its gradient and their errors, as SVG or PNG.",
)
def explain(spec: str, output: Path, form: str, picture: Path | None) -> None:
    """Tell how SPEC became its kernels: each step, what it rests on and saves, and what is left."""
    from fusegen import access, build, explain, library
    from fusegen.certify import certificate, state

    access.require_writable(*filter(None, [picture]))
    compiled = build.compiled_file(library.find(spec, SPECS))
    module = compiled.module(output)
    evidence = state.read(certificate.path_of(module))
    found = explain.explained(compiled, evidence, state.states(module, state.claim(compiled.spec)))
    click.echo(explain.written(found, form), nl=False)
    if picture:
        from fusegen.certify import error_plot

        error_plot.save(error_plot.error_plot(compiled, output), picture)


@click.command()
@click.argument("name")
def new(name: str) -> None:
    """Write specs/NAME.yaml, with comments, to start from."""
    from fusegen import write
    from fusegen.new import starter

    path = SPECS / f"{name}.yaml"
    text = starter(name, path)
    write.apply(write.Change(path, None, text))
    click.echo(f"{painted('new')} {path}")


@click.command()
def schema() -> None:
    """Write specs/schema.json, which gives editors completion and checks."""
    from fusegen import write
    from fusegen.schema import schema_text

    for change in write.changes({SCHEMA: schema_text()}):
        write.apply(change)
        click.echo(f"{painted(change.kind)} {change.path}")
