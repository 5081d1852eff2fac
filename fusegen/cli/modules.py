"""The verbs that make modules, and tell what there is."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fusegen.cli.options import GENERATED, SPECS, WHERE
from fusegen.errors import counted

SCHEMA = SPECS / "schema.json"
BINDINGS = ("stable", "pybind")
FORMATS = ("text", "markdown", "latex")
STAGES = ("parse", "compose", "derive", "simplify", "ir", "cuda", "cpu", "module")


@click.command()
@click.argument("specs", nargs=-1, metavar="[SPEC]...")
@click.option("--output", default=GENERATED, type=click.Path(path_type=Path), help="Where modules go.")
@click.option(
    "--binding",
    type=click.Choice(BINDINGS),
    default="stable",
    help="By PyTorch's stable ABI, from 2.10 on, or by pybind11, from 2.0 on.",
)
def build(specs: tuple[str, ...], output: Path, binding: str) -> None:
    """Write the modules of some specs, or of all in specs/ when none is named.

    It prints a sentence for a spec whose results may be less accurate than promised, or slow, and for a
    step of a chain that is not the spec of its name that comes with fusegen.

    A SPEC is a path, or the name of a spec in specs/ or of one that comes with fusegen.
    """
    from fusegen import library, pipeline, write
    from fusegen.doubts import doubt, shadows
    from fusegen.render import Binding

    paths = library.find_all(specs, SPECS)
    compilations = pipeline.compilations(paths, output, Binding(binding))
    texts = {path: compiled.module for path, compiled in compilations.items()}
    changes = write.changes(texts)
    if not specs:
        changes += write.stale(output, texts)
    for change in changes:
        write.apply(change)
        click.echo(f"{_painted(change.kind)} {change.path}")
    same = len(texts) - sum(change.after is not None for change in changes)
    if same:
        click.echo(f"unchanged: {same} module{'s' if same > 1 else ''}")
    for sentence in filter(None, map(doubt, compilations.values())):
        click.echo(sentence, err=True)
    for compiled in compilations.values():
        for sentence in dict.fromkeys(shadows(compiled)):
            click.echo(sentence, err=True)


@click.command()
@WHERE
def check(output: Path) -> None:
    """Compare generated/ with what the specs say, and specs/schema.json with the language.

    It also says which certificates are of another kernel than the module's; those are no difference.
    """
    from fusegen import library, pipeline, write
    from fusegen.certify import state

    specs = library.find_all((), SPECS)
    texts = pipeline.modules(specs, output)
    differences = [*write.changes(texts), *write.stale(output, texts)]
    if SCHEMA.exists():
        differences += write.changes({SCHEMA: pipeline.schema_text()})
    for change in differences:
        click.echo(change.diff(), nl=False)
    foreign = write.foreign(output, texts)
    for path in foreign:
        click.echo(f"{path}: no spec makes this file", err=True)
    if differences or foreign:
        remedy = "run 'python -m fusegen build' (and 'schema'), read the diff, commit it"
        count = len(differences) + len(foreign)
        click.echo(f"{counted(count, 'file')} differ{'s' if count == 1 else ''}; {remedy}", err=True)
        sys.exit(1)
    for path, claim in zip(texts, map(state.claim, map(library.load, specs)), strict=True):
        for sentence in state.sentences(path, state.states(path, claim)):
            click.echo(sentence, err=True)
    click.echo(f"{len(texts)} modules are what their specs say")


@click.command("list")
@WHERE
def list_(output: Path) -> None:
    """Show every spec: its formula, dtypes, and what its module and its certificate are worth."""
    from fusegen import library, pipeline
    from fusegen.certify import state

    specs = library.find_all((), SPECS)
    rows = [
        (*row, ", ".join(map(" ".join, state.states(output / f"{row[0]}.py", claim).items())) or "none")
        for row, claim in zip(
            pipeline.states(specs, output), map(state.claim, map(library.load, specs)), strict=True
        )
    ]
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("spec", "formula", "dtypes", "module", "certificate", box=None)
    for row in rows:
        table.add_row(*row, style=None if row[3] == "current" else "yellow")
    Console(markup=False).print(table)


@click.command()
@click.argument("spec")
@click.option("--stage", type=click.Choice(STAGES), default="module", help="Where to stop.")
def show(spec: str, stage: str) -> None:
    """Print what a stage of the compiler makes of SPEC."""
    from fusegen import library, pipeline

    click.echo(pipeline.stage(library.find(spec, SPECS), stage), nl=False)


@click.command()
@click.argument("spec")
@WHERE
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", help="How to write it.")
@click.option(
    "--plot",
    "picture",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw the function, its gradient and their errors, as SVG or PNG.",
)
def explain(spec: str, output: Path, form: str, picture: Path | None) -> None:
    """Tell how SPEC became its kernels: each step, what it rests on and saves, and what is left."""
    from fusegen import explain, library, pipeline
    from fusegen.certify import certificate, state

    compiled = pipeline.compilation(library.find(spec, SPECS))
    module = output / f"{compiled.spec.name}.py"
    evidence = state.read(certificate.path_of(module))
    found = explain.explained(compiled, evidence, state.states(module, state.claim(compiled.spec)))
    click.echo(explain.written(found, form), nl=False)
    if picture:
        from fusegen.certify import portrait

        portrait.save(portrait.portrait(compiled, output), picture)


@click.command()
@click.argument("name")
def new(name: str) -> None:
    """Write specs/NAME.yaml, with comments, to start from."""
    from fusegen import pipeline, write

    path = SPECS / f"{name}.yaml"
    text = pipeline.starter(name, path)
    write.apply(write.Change(path, None, text))
    click.echo(f"{_painted('new')} {path}")


@click.command()
def schema() -> None:
    """Write specs/schema.json, which gives editors completion and checks."""
    from fusegen import pipeline, write

    for change in write.changes({SCHEMA: pipeline.schema_text()}):
        write.apply(change)
        click.echo(f"{_painted(change.kind)} {change.path}")


def _painted(kind: str) -> str:
    colours = {"new": "green", "changed": "yellow", "stale": "red"}
    return click.style(f"{kind:8}", fg=colours[kind])  # click drops colours off a terminal
