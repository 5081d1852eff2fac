"""The arguments and options that several commands take, and the folders that they mean."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from fusegen.core import config
from fusegen.errors import SpecErrors

Command = Callable[..., Any]  # the function of one
DEVICES = ("cpu", "cuda")
DTYPES = ("float32", "float16", "bfloat16", "float64")


def specs_folder() -> Path:
    """Return the folder of the specs, of the option --specs or of the configuration."""
    return config.current().specs


def schema_file() -> Path:
    """Return the file of the schema, beside the specs."""
    return specs_folder() / "schema.json"


def _specs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the completions of a SPEC: the names of specs, or files where no name begins so."""
    from fusegen.language import library

    with suppress(SpecErrors):  # a mistake in the configuration is for the command to tell
        config.use(config.found(Path()))
    roots = (specs_folder(), library.shipped())
    every = {path.relative_to(root).with_suffix("") for root in roots for path in library.every(root)}
    names = sorted(path.as_posix() for path in every if path.as_posix().startswith(incomplete))
    return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


ONE_SPEC = click.argument("spec", shell_complete=_specs)
SEVERAL_SPECS = click.argument("specs", nargs=-1, metavar="[SPEC]...", shell_complete=_specs)
NAMED_SPECS = click.argument("specs", nargs=-1, required=True, metavar="SPEC...", shell_complete=_specs)
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
WHERE = click.option(
    "--output",
    default=lambda: config.current().output,
    type=click.Path(path_type=Path),
    help="The folder of the modules.",
)
DEVICE = click.option(
    "--device",
    type=click.Choice(DEVICES),
    help="The device; by default the CPU, and a GPU if there is one.",
)
DTYPE = click.option(
    "--dtype", "dtypes", type=click.Choice(DTYPES), multiple=True, help="Only this dtype; repeatable."
)


def seconds_option(usual: float, says: str) -> Callable[[Command], Command]:
    """Return the option of a time, which is not below 0."""
    return click.option("--seconds", type=click.FloatRange(0), default=usual, show_default=True, help=says)


def devices(device: str | None) -> tuple[str, ...]:
    """Return the device that is named, or all there are."""
    if device is not None:
        return (device,)
    import torch

    return DEVICES if torch.cuda.is_available() else ("cpu",)
