"""`--specs`, which every command takes, over the folder of the configuration."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from fusegen import config
from fusegen.cli.options import FOLDER

HELP = "The folder of the specs; else that of [tool.fusegen] in pyproject.toml, or specs."


def located(group: click.Group) -> None:
    """Give the option to all commands of a group, and to those of its groups."""
    for command in group.commands.values():
        if isinstance(command, click.Group):
            located(command)
        else:
            option = click.Option(
                ["--specs", "folder_of_specs"],
                type=FOLDER,
                expose_value=False,
                is_eager=True,
                help=HELP,
                callback=_use,
            )
            command.params.append(option)


def _use(ctx: click.Context, option: click.Parameter, value: Path | None) -> None:
    """Use another folder of specs from now on."""
    if value is not None:
        of = config.current()
        inside = Path(os.path.abspath(value)).is_relative_to(os.path.abspath(of.base))
        config.use(replace(of, specs=value, base=of.base if inside else value))
