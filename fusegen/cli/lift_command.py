"""The command that writes the specs and modules of a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fusegen.cli.building import make
from fusegen.cli.lift_network import JSON, TEXT, build_specs, lift_network
from fusegen.cli.options import WHERE, specs_folder
from fusegen.core.chips import CHIPS, Chip

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fusegen.models.lift.load import Problem
    from fusegen.models.lift.pair import Lifted

FORMATS = TEXT, JSON
ONE_PASS, TWO_PASSES = 1, 2  # of eager over memory, from which on a region has a kernel


@dataclass(frozen=True)
class Options:
    """The options of `lift`, under their names on the command line."""

    name: str | None
    output: Path
    partial: bool
    every: bool
    device: str | None
    shapes: tuple[str, ...]
    inputs: str | None
    form: str
    times: bool
    trains: bool

    @property
    def runs_on(self) -> str:
        """The type of the device whose rule says which regions have a kernel."""
        from fusegen.models.lift.rule import usual_device

        return "cuda" if self.chip else self.device or usual_device()

    @property
    def chip(self) -> Chip | None:
        """The chip that `--for` names."""
        return CHIPS.get(self.device or "")

    @property
    def least_passes(self) -> int:
        """The passes of eager over memory from which on a region has a kernel."""
        return ONE_PASS if self.every else TWO_PASSES


@click.command()
@click.argument("target", metavar="TARGET")
@click.option("--name", help="The name of the spec or of the partial model; by default that of the file.")
@WHERE
@click.option(
    "--partial",
    is_flag=True,
    help="Keep PyTorch for operations that no spec can hold, between generated kernels.",
)
@click.option("--every", is_flag=True, help="Generate kernels also where PyTorch alone is as fast.")
@click.option(
    "--for",
    "device",
    type=click.Choice(["cpu", "cuda", *CHIPS]),
    help="The device whose rule says which regions have a kernel; by default CUDA if there is a GPU. Of a "
    "chip its two clocks are modelled, and those of a network have one that gain by these.",
)
@click.option(
    "--input",
    "shapes",
    multiple=True,
    metavar="SHAPE",
    help="The shape of an input, such as 1x3x224x224 or 4x128:int64; repeatable.",
)
@click.option("--inputs", metavar="TARGET", help="A callable that returns the inputs of a network.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default=TEXT,
    help="The format of the report of a network.",
)
@click.option(
    "--time",
    "times",
    is_flag=True,
    help="Time a network beside its model and torch.compile, on this machine.",
)
@click.option("--training", "trains", is_flag=True, help="With --time, time a step in training, too.")
@click.pass_context
def lift(ctx: click.Context, /, target: str, **options: Any) -> None:
    """Write specs and modules for a model or parts of a network.

    TARGET is FILE.py:MODEL. The file is run: it defines the class MODEL of torch.nn.Module, get_inputs and
    get_init_inputs. The class is made and its forward traced; a model that no spec can hold is refused with
    the line. The module is compared with the model on the CPU: its state_dict after the same seed, its
    outputs and gradients; the status is 1 if no sizes are small enough for that.

    With --partial, layers, reductions and other calls stay PyTorch's. Each region of pointwise operations
    between them becomes a spec and a module, and the model a file that calls both.

    With --input or --inputs, TARGET is module:attribute or FILE.py:attribute, a model or a callable that
    returns one. Each distinct region of its forward becomes a spec and a module, and a report
    shows the memory passes that they save. fusegen.lift(model, inputs) returns the network that runs them.
    """
    given = Options(**options)
    is_network = bool(given.shapes or given.inputs)
    needs = {
        "--format json": given.form == JSON,
        "--time": given.times,
        f"--for {given.device}": given.chip is not None,
    }
    for option, is_given in needs.items():
        if is_given and not is_network:
            raise click.UsageError(f"{option} needs --input or --inputs")
    if given.trains and not given.times:
        raise click.UsageError("--training needs --time")
    click.echo(f"this runs {target.rpartition(':')[0] or target}", err=given.form == JSON)
    if is_network:
        if given.partial:
            raise click.UsageError("--partial takes no --input and no --inputs")
        lift_network(ctx, target, given)
    elif given.every and not given.partial:
        raise click.UsageError("--every needs --partial, --input or --inputs")
    else:
        _model(ctx, target, given)


def _model(ctx: click.Context, target: str, given: Options) -> None:
    """Lift the model of a file: whole, or if that is asked for and it cannot be, in part."""
    from fusegen.errors import NotAModel, NotLifted
    from fusegen.models.lift.lifted import lifted_problem
    from fusegen.models.lift.load import executed, read

    problem = executed(*read(target))
    if given.partial:
        try:
            lifted_problem(problem, given.name)
        except (NotAModel, NotLifted):
            _partial(ctx, problem, given)
            return
    _whole(ctx, problem, given)


def _whole(ctx: click.Context, problem: Problem, given: Options) -> None:
    from fusegen.models.lift.lifted import lifted_problem
    from fusegen.models.lift.report import report
    from fusegen.models.lift.spec_text import checked, source_line

    found = lifted_problem(problem, given.name)
    path = specs_folder() / f"{found.name}.yaml"
    make(checked(path, found.text, source_line(found.problem)))
    build_specs(ctx, (path,), given.output)
    _compare(ctx, found, report(found), given.output / f"{found.name}.py")


def _partial(ctx: click.Context, problem: Problem, given: Options) -> None:
    """Lift the regions of a model to specs and their modules, and the model to a file that calls them."""
    from fusegen.core import write
    from fusegen.models.lift.partial.partial_model import checked, partial
    from fusegen.models.lift.rule import asked
    from fusegen.models.lift.summary import summary

    found = partial(problem, given.name, specs_folder(), given.least_passes, given.runs_on)
    path = given.output / f"{found.name}.py"
    module = checked(path, found)
    make(write.changes(dict(found.specs.texts)))
    build_specs(ctx, tuple(found.specs.texts), given.output)
    make(module)
    report = summary(found.found, found.specs, given.runs_on)
    _compare(ctx, found, (asked(given.runs_on, given.least_passes), *report.lines()), path)


def _compare(ctx: click.Context, found: Lifted, report: Iterable[str], module: Path) -> None:
    """Print the report of a lifted model and of its comparison; status 1 if nothing could be compared."""
    from fusegen.errors import NotCompared
    from fusegen.models.lift.verify import verified

    try:
        compared = tuple(verified(found, module))
    except NotCompared as error:
        click.echo("\n".join(report))
        click.echo(error, err=True)
        ctx.exit(1)
    click.echo("\n".join((*report, *compared)))
