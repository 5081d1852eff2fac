"""The commands that show specs and what becomes of them, and start new ones."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from fusegen.cli.building import make
from fusegen.cli.json_records import JSON, print_records, record
from fusegen.cli.options import FILE, ONE_SPEC, WHERE, schema_file, specs_folder

Row = Mapping[str, str | Sequence[str] | Mapping[str, str]]  # by column
CURRENT = "current"
OUTDATED = {"new": "not built", "changed": "out of date"}  # by what a build would do
FORMATS = ("text", "markdown", "latex")
STAGES = ("parse", "compose", "derive", "simplify", "ir", "facts", "plan", "cuda", "cpu", "module")


@click.command("list")
@WHERE
@click.option("--functions", is_flag=True, help="Show the functions of formulas instead.")
@JSON
def list_(output: Path, functions: bool, as_json: bool) -> None:
    """Show every spec, with the states of module and certificate.

    Each line has the formula, the dtypes and the accepted warnings, too.

    In a folder without specs, those that come with fusegen, which a formula can call by name.

    A certificate is ok by device, or shows the rule that it breaks: "cuda float32 C1 in 2 cells". A warning
    of build that the spec accepts is shown with the reason.
    """
    kind, found = ("function", _functions()) if functions else ("spec", _specs(output))
    if as_json:
        print_records(record(kind, **row) for row in found)
    else:
        _table([*found])


def _functions() -> Iterator[Row]:
    from fusegen.codegen.printers import notation

    return (dict(zip(("function", "value"), row, strict=True)) for row in notation.functions())


def _specs(output: Path) -> Iterator[Row]:
    from fusegen.codegen.printed import Binding
    from fusegen.codegen.printers.notation import formulas
    from fusegen.core import write
    from fusegen.evidence.certify import certificate_state
    from fusegen.language import library
    from fusegen.project import modules, outputs

    own = library.every(specs_folder())
    specs = own or library.every(library.shipped())
    paths = [output / f"{library.place(of)}.py" for of in specs]
    # Of fusegen's own, which are without mistakes, the compiler takes minutes to say what is not there.
    there = own or [of for of, path in zip(specs, paths, strict=True) if os.path.lexists(path)]
    binding = Binding(outputs.opened(output, specs_folder()).configured().binding)
    built = modules.built(there, output, binding)
    texts = {path: found.text for path, found in built.items()}
    states = {change.path: OUTDATED[change.kind] for change in write.changes(texts)}
    for path, of in zip(paths, specs, strict=True):
        spec = library.load(of)
        yield {
            "spec": library.place(of).as_posix(),
            "formula": "; ".join(formulas(spec)),
            "dtypes": spec.dtypes,
            "module": states.get(path, CURRENT) if path in texts else OUTDATED["new"],
            "certificate": certificate_state.of_spec(path, spec),
            "accepted": dict(spec.accept),
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
    match value:
        case str():
            return value
        case Mapping():
            return ", ".join(map(" ".join, value.items())) or "none"
    return ", ".join(value)


@click.command()
@ONE_SPEC
@click.option("--stage", type=click.Choice(STAGES), default="module", help="The last stage.")
def show(spec: str, stage: str) -> None:
    """Print the output of a stage of the compiler for SPEC."""
    from fusegen.evidence.show import stage as shown
    from fusegen.language import library

    click.echo(shown(library.find(spec, specs_folder()), stage), nl=False)


@click.command()
@ONE_SPEC
@WHERE
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="text", help="The format of the text."
)
@click.option(
    "--plot",
    "picture",
    type=FILE,
    metavar="FILE",
    help="Draw the function, its gradient and their errors, as SVG or PNG.",
)
@JSON
def explain(spec: str, output: Path, form: str, picture: Path | None, as_json: bool) -> None:
    """Show how SPEC became its kernels: rewrites, costs, errors.

    Each rewrite has its precondition; methods are shown, too.
    """
    from fusegen.compiler.pipeline import Compiled
    from fusegen.compiler.row_kernels import CompiledRows
    from fusegen.compiler.window_kernels import CompiledWindows
    from fusegen.core import access
    from fusegen.evidence import explain
    from fusegen.evidence.certify import certificate_state
    from fusegen.language import library
    from fusegen.project import build

    access.require_writable(*filter(None, [picture]))
    path = library.find(spec, specs_folder())
    compiled = build.compiled_file(path) if picture else build.compiled_either(path)
    evidence = certificate_state.of_kernels(compiled.module(output), compiled.spec)
    for one, of_one in zip(build.kernels(compiled), evidence, strict=True):
        if isinstance(one, CompiledRows | CompiledWindows):
            lines, text = explain.reduced(one, form)
        else:
            found = explain.Explanation(one, *of_one)
            lines, text = explain.records(found), explain.written(found, form)
        if as_json:
            print_records(lines)
        else:
            click.echo(text, nl=False)
    if picture and isinstance(compiled, Compiled):
        from fusegen.evidence.certify import error_plot

        error_plot.save(error_plot.error_plot(compiled, output), picture)


@click.command()
@click.argument("name")
def new(name: str) -> None:
    """Write a commented specs/NAME.yaml to start from.

    Editors check it by the schema, which is written, too.
    """
    from fusegen.core import write
    from fusegen.project.new_spec import starter

    path = specs_folder() / f"{name}.yaml"
    text = starter(name, path)
    make([write.Change(path, None, text)])
    _write_schema()


@click.command()
def schema() -> None:
    """Write specs/schema.json, by which editors check specs."""
    _write_schema()


def _write_schema() -> None:
    """Write the schema beside the specs, and print a line if it changes."""
    from fusegen.core import write
    from fusegen.language.schema import schema_text

    make(write.changes({schema_file(): schema_text()}))
