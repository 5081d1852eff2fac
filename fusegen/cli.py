"""The command line: what people type, what they read, and the exit status.

Status 0: done. 1: ``check`` found a difference, ``certify`` a broken promise. 2: a mistake in a spec or in
the command.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fusegen import __version__
from fusegen.errors import FusegenError, SpecErrors, counted

if TYPE_CHECKING:
    from fusegen.certify.campaign import Verdict
    from fusegen.certify.findings import Evidence

SPECS, GENERATED = Path("specs"), Path("generated")
SCHEMA = SPECS / "schema.json"
BINDINGS = ("stable", "pybind")
DEVICES = ("cpu", "cuda")
DTYPES = ("float32", "float16", "bfloat16", "float64")
STAGES = ("parse", "compose", "derive", "simplify", "ir", "cuda", "cpu", "module")


class _Group(click.Group):
    """Prints a user's mistakes as they are and ends with status 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (FusegenError, SpecErrors) as error:
            click.echo(error, err=True)
            ctx.exit(2)
        except ModuleNotFoundError as error:
            if error.name not in ("torch", "flint"):
                raise
            click.echo(f"this needs {error.name}: pip install 'fusegen[certify]'", err=True)
            ctx.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fusegen")
def main() -> None:
    """Compile activations and pointwise chains to readable PyTorch kernels."""


@main.command()
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

    A SPEC is a path, or the name of a spec in specs/ or of one that comes with fusegen.
    """
    from fusegen import library, pipeline, write
    from fusegen.render import Binding

    paths = library.find_all(specs, SPECS)
    texts = pipeline.modules(paths, output, Binding(binding))
    changes = write.changes(texts)
    if not specs:
        changes += write.stale(output, texts)
    for change in changes:
        write.apply(change)
        click.echo(f"{_painted(change.kind)} {change.path}")
    same = len(texts) - sum(change.after is not None for change in changes)
    if same:
        click.echo(f"unchanged: {same} module{'s' if same > 1 else ''}")


@main.command()
@click.option("--output", default=GENERATED, type=click.Path(path_type=Path), help="Where modules are.")
def check(output: Path) -> None:
    """Compare generated/ with what the specs say, and specs/schema.json with the language.

    It also says which certificates are of another kernel than the module's; those are no difference.
    """
    from fusegen import library, pipeline, write
    from fusegen.certify import certificate

    texts = pipeline.modules(library.find_all((), SPECS), output)
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
    for path in texts:
        stale = [device for device, state in certificate.states(path).items() if state == "stale"]
        if stale:
            remedy = f"run 'python -m fusegen certify {path.stem}'"
            click.echo(
                f"{path}: its certificate is of another kernel ({', '.join(stale)}); {remedy}", err=True
            )
    click.echo(f"{len(texts)} modules are what their specs say")


@main.command("list")
@click.option("--output", default=GENERATED, type=click.Path(path_type=Path), help="Where modules are.")
def list_(output: Path) -> None:
    """Show every spec: its formula, dtypes, and what its module and its certificate are worth."""
    from fusegen import library, pipeline
    from fusegen.certify import certificate

    rows = [
        (*row, ", ".join(map(" ".join, certificate.states(output / f"{row[0]}.py").items())) or "none")
        for row in pipeline.states(library.find_all((), SPECS), output)
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


@main.command()
@click.argument("spec")
@click.option("--stage", type=click.Choice(STAGES), default="module", help="Where to stop.")
def show(spec: str, stage: str) -> None:
    """Print what a stage of the compiler makes of SPEC."""
    from fusegen import library, pipeline

    click.echo(pipeline.stage(library.find(spec, SPECS), stage), nl=False)


@main.command()
@click.argument("name")
def new(name: str) -> None:
    """Write specs/NAME.yaml, with comments, to start from."""
    from fusegen import pipeline, write

    path = SPECS / f"{name}.yaml"
    text = pipeline.starter(name, path)
    write.apply(write.Change(path, None, text))
    click.echo(f"{_painted('new')} {path}")


@main.command()
def schema() -> None:
    """Write specs/schema.json, which gives editors completion and checks."""
    from fusegen import pipeline, write

    for change in write.changes({SCHEMA: pipeline.schema_text()}):
        write.apply(change)
        click.echo(f"{_painted(change.kind)} {change.path}")


_DEVICE = click.option(
    "--device",
    type=click.Choice(DEVICES),
    help="Where to run; without it, on the CPU and on a GPU if there is one.",
)
_DTYPE = click.option(
    "--dtype", "dtypes", type=click.Choice(DTYPES), multiple=True, help="Only this; repeatable."
)
_SAMPLE = click.option(
    "--sample",
    type=click.IntRange(min=1),
    help="A quick look at so many float32 inputs; nothing is written.",
)


@main.command()
@click.argument("specs", nargs=-1, metavar="[SPEC]...")
@click.option("--output", default=GENERATED, type=click.Path(path_type=Path), help="Where modules are.")
@_DEVICE
@_DTYPE
@_SAMPLE
@click.option(
    "--resume", is_flag=True, help="Leave out what a certificate already says of the same kernel."
)
@click.option(
    "--at",
    "at",
    multiple=True,
    metavar="X",
    help="Show one input only, in decimals or as float.hex writes it.",
)
def certify(
    specs: tuple[str, ...], output: Path, device: str | None, dtypes: tuple[str, ...], sample: int | None,
    resume: bool, at: tuple[str, ...],
) -> None:  # fmt: skip
    """Hold modules against the real function and PyTorch, on every input, and write their certificates.

    A float32 function of one tensor is tried on all 2**32 inputs, 16-bit ones on all 2**16, others on a
    stratified sample. The certificate lies beside the module, as NAME.certificate.json.
    """
    from fusegen import library, pipeline
    from fusegen.certify import campaign

    compiled = tuple(pipeline.compilation(path) for path in library.find_all(specs, SPECS))
    order = campaign.Order(output, _devices(device), dtypes, sample, resume)
    if at:
        click.echo(campaign.looked_at(compiled, order, tuple(map(_hexadecimal, at))), nl=False)
        return
    with _Bars() as bars:
        verdicts = list(bars.shown(campaign.campaign(compiled, order, bars)))
    broken = [verdict for verdict in verdicts if verdict.evidence.broken]
    for verdict in broken:
        for line in campaign.told(verdict):
            click.echo(line, err=True)
    if broken:
        click.echo(f"{counted(len(broken), 'promise')} broken, of {len(verdicts)}", err=True)
        sys.exit(1)


@main.command()
@click.argument("function", metavar="CALLABLE")
@click.option("--formula", required=True, help="What it should compute, as a spec's formula says it.")
@click.option("--inputs", default="x", help="The names of the tensors in the formula, with commas.")
@_DEVICE
@_DTYPE
@_SAMPLE
def audit(
    function: str,
    formula: str,
    inputs: str,
    device: str | None,
    dtypes: tuple[str, ...],
    sample: int | None,
) -> None:
    """Hold any callable against a formula on every input: torch.nn.functional.gelu, or your own.

    CALLABLE is a dotted name below a module that can be imported here, and may fix arguments:
    "torch.nn.functional.gelu(approximate='tanh')".
    """
    from fusegen.certify import campaign

    names = tuple(name.strip() for name in inputs.split(","))
    order = campaign.Order(Path(), _devices(device), dtypes or DTYPES, sample)
    with _Bars() as bars:
        list(bars.shown(campaign.audit(function, formula, names, SPECS, order, bars)))


def _devices(device: str | None) -> tuple[str, ...]:
    if device is not None:
        return (device,)
    import torch

    return DEVICES if torch.cuda.is_available() else ("cpu",)


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text) if "x" in text.lower() else float(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is not a number", param_hint="--at") from None


class _Bars:
    """Progress with the time left on a terminal, and a line for each verdict anywhere."""

    def __enter__(self) -> _Bars:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self.console = Console(markup=False, highlight=False, soft_wrap=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self.progress = Progress(
            *columns, console=self.console, transient=True, disable=not sys.stdout.isatty()
        )
        self.progress.start()
        self.task = self.progress.add_task("building", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def begin(self, title: str, inputs: int) -> None:
        """A new bar."""
        self.progress.reset(self.task, description=title, total=inputs)

    def advance(self, inputs: int) -> None:
        """Some more of it."""
        self.progress.advance(self.task, inputs)

    def shown(self, verdicts: Iterable[Verdict]) -> Iterable[Verdict]:
        """The verdicts, each printed as it comes."""
        for verdict in verdicts:
            for line in _lines(verdict.evidence):
                self.console.print(
                    f"{verdict.name:22} {verdict.device:4} {verdict.evidence.dtype:8} {line}"
                )
            yield verdict


def _lines(evidence: Evidence) -> Iterable[str]:
    """A line for each output: the largest errors and how many results are misrounded."""
    inputs = f"all {evidence.inputs:,}" if evidence.every else f"{evidence.inputs:,}"
    for output in evidence.outputs:
        line = f"{output.name:12} {output.given.ulp:.4g} ulp, {output.given.misrounded:,} misrounded"
        if output.eager:
            line += f" (eager {output.eager.ulp:.4g}, {output.eager.misrounded:,})"
        yield f"{line}, of {inputs}"


def _painted(kind: str) -> str:
    colours = {"new": "green", "changed": "yellow", "stale": "red"}
    return click.style(f"{kind:8}", fg=colours[kind])  # click drops colours off a terminal
