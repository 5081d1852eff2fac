"""The verb that makes specs and modules of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusegen.cli.building import build, painted
from fusegen.cli.options import GENERATED, SPECS

if TYPE_CHECKING:
    from fusegen.lift.load import Problem
    from fusegen.write import Change


@click.command()
@click.argument("target", metavar="FILE.py:MODEL")
@click.option("--name", help="Of the spec; without it, that of the file.")
@click.option("--output", default=GENERATED, type=click.Path(path_type=Path), help="Where the module goes.")
@click.option(
    "--partial", is_flag=True, help="Leave what no spec can hold to PyTorch, between generated kernels."
)
@click.option("--every", is_flag=True, help="With --partial, a kernel for single operations, too.")
@click.pass_context
def lift(
    ctx: click.Context, target: str, name: str | None, output: Path, partial: bool, every: bool
) -> None:
    """Write the spec and the module that replace a model, and compare both.

    FILE.py is run: it defines the class MODEL of torch.nn.Module, get_inputs and get_init_inputs. The class
    is made and its forward traced; a model that no spec can hold is refused with the line. The module is
    compared with the model on the CPU: its state_dict after the same seed, and its outputs.

    With --partial, layers, reductions and other calls stay PyTorch's. Each region of pointwise operations
    between them becomes a spec and a module, and the model a file that calls both.
    """
    from fusegen.errors import NotAModel, NotLifted
    from fusegen.lift.load import executed, read

    if every and not partial:
        raise click.UsageError("--every needs --partial")
    click.echo(f"this runs {target.rpartition(':')[0] or target}")
    problem = executed(*read(target))
    if not partial:
        _whole(ctx, problem, name, output)
        return
    from fusegen.lift.lifted import lifted_problem

    try:
        lifted_problem(problem, name)
    except (NotAModel, NotLifted):
        _partial(ctx, problem, name, output, 1 if every else 2)
    else:
        _whole(ctx, problem, name, output)


def _whole(ctx: click.Context, problem: Problem, name: str | None, output: Path) -> None:
    """Lift a model to one spec and its module."""
    from fusegen.lift.lifted import lifted_problem
    from fusegen.lift.report import report
    from fusegen.lift.spec_text import checked, source_line
    from fusegen.lift.verify import verified

    found = lifted_problem(problem, name)
    path = SPECS / f"{found.name}.yaml"
    _write(checked(path, found.text, source_line(found.problem)))
    _build(ctx, (path,), output)
    for sentence in (*report(found), *verified(found, output / f"{found.name}.py")):
        click.echo(sentence)


def _partial(ctx: click.Context, problem: Problem, name: str | None, output: Path, passes: int) -> None:
    """Lift the regions of a model to specs and their modules, and the model to a file that calls them."""
    from fusegen import write
    from fusegen.lift.partial.model import checked, partial
    from fusegen.lift.partial.report import report
    from fusegen.lift.verify import verified

    found = partial(problem, name, SPECS, passes)
    path = output / f"{found.name}.py"
    module = checked(path, found)
    _write(write.changes(dict(found.specs.texts)))
    _build(ctx, tuple(found.specs.texts), output)
    _write(module)
    for sentence in (*report(found), *verified(found, path)):
        click.echo(sentence)


def _write(changes: tuple[Change, ...]) -> None:
    """Write files, and print a line for each."""
    from fusegen import write

    for change in changes:
        write.apply(change)
        click.echo(f"{painted(change.kind)} {change.path}")


def _build(ctx: click.Context, specs: tuple[Path, ...], output: Path) -> None:
    """Run `build` on some specs."""
    names = tuple(map(str, specs))
    ctx.invoke(build, specs=names, output=output, binding=None, prune=False, standalone=None)
