"""The verb that makes a spec and a module of a model."""

from __future__ import annotations

from pathlib import Path

import click

from fusegen.cli.building import build, painted
from fusegen.cli.options import GENERATED, SPECS


@click.command()
@click.argument("target", metavar="FILE.py:MODEL")
@click.option("--name", help="Of the spec; without it, that of the file.")
@click.option("--output", default=GENERATED, type=click.Path(path_type=Path), help="Where the module goes.")
@click.pass_context
def lift(ctx: click.Context, target: str, name: str | None, output: Path) -> None:
    """Write the spec and the module that replace a model, and compare both.

    FILE.py is run: it defines the class MODEL of torch.nn.Module, get_inputs and get_init_inputs. The class
    is made and its forward traced; a model that no spec can hold is refused with the line. The module is
    compared with the model on the CPU: its state_dict after the same seed, and its outputs.
    """
    from fusegen import write
    from fusegen.lift.lifted import lifted
    from fusegen.lift.report import report
    from fusegen.lift.spec_text import checked, source_line
    from fusegen.lift.verify import verified

    click.echo(f"this runs {target.rpartition(':')[0] or target}")
    found = lifted(target, name)
    path = SPECS / f"{found.name}.yaml"
    changes = checked(path, found.text, source_line(found.problem))
    for change in changes:
        write.apply(change)
        click.echo(f"{painted(change.kind)} {change.path}")
    ctx.invoke(build, specs=(str(path),), output=output, binding=None, prune=False, standalone=None)
    for sentence in report(found):
        click.echo(sentence)
    for sentence in verified(found, output / f"{found.name}.py"):
        click.echo(sentence)
