"""The configuration of every command, and `--specs`, which has precedence over its folder."""

import functools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fusegen.cli.options import FOLDER
from fusegen.core import config

MISTAKES = f"{__name__}.mistakes"  # in the configuration, among the meta data of a click context
HELP = "The folder of the specs; else that of [tool.fusegen] in pyproject.toml, or specs."


def located(group: click.Group) -> None:
    """Give the option to all commands of a group and its groups, which report a wrong configuration."""
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
            if command.callback:
                command.callback = _configured(command.callback)


def _configured(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return the callback of a command, which runs if the configuration has no mistake."""

    @functools.wraps(callback)
    def run(*args: Any, **kwargs: Any) -> Any:
        mistakes = click.get_current_context().meta.get(MISTAKES)
        if mistakes:
            raise mistakes
        return callback(*args, **kwargs)

    return run


def _use(ctx: click.Context, option: click.Parameter, value: Path | None) -> None:
    if value is not None:
        of = config.current()
        inside = Path(os.path.abspath(value)).is_relative_to(os.path.abspath(of.base))
        config.use(replace(of, specs=value, base=of.base if inside else value))
