"""The options that several verbs take, and the folders that they mean."""

from __future__ import annotations

from pathlib import Path

import click

SPECS, GENERATED = Path("specs"), Path("generated")
DEVICES = ("cpu", "cuda")
FOLDER = click.Path(path_type=Path, file_okay=False)
DTYPES = ("float32", "float16", "bfloat16", "float64")

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
WHERE = click.option(
    "--output", default=GENERATED, type=click.Path(path_type=Path), help="Where modules are."
)
DEVICE = click.option(
    "--device",
    type=click.Choice(DEVICES),
    help="Where to run; without it, on the CPU and on a GPU if there is one.",
)
DTYPE = click.option(
    "--dtype", "dtypes", type=click.Choice(DTYPES), multiple=True, help="Only this; repeatable."
)


def devices(device: str | None) -> tuple[str, ...]:
    """The devices that are meant: the one named, or all there are."""
    if device is not None:
        return (device,)
    import torch

    return DEVICES if torch.cuda.is_available() else ("cpu",)
