"""`--quiet` and `--verbose`, which every command takes, with one meaning.

Quiet: a command prints nothing but errors; the exit status says the rest. Verbose: it also prints its steps
with their seconds, and the whole output of a compiler that failed.
"""

import functools
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TypeVar

import click

from fusegen.core.timing import LOG, step

LEVELS = {
    "quiet": "Print errors only; the exit status says the rest.",
    "verbose": "Print the steps and their seconds, and the whole output of a compiler that fails.",
}
_CHOSEN, _ENTERED = f"{__name__}.chosen", f"{__name__}.entered"
Command = TypeVar("Command", bound=click.Command)


def levelled(command: Command) -> Command:
    """Return the command, and all below it, with the options of this file."""
    command.params += [
        click.Option(
            [f"-{name[0]}", f"--{name}"], is_flag=True, expose_value=False, help=text, callback=_choose
        )
        for name, text in LEVELS.items()
    ]
    if isinstance(command, click.Group):
        for each in command.commands.values():
            levelled(each)
    elif command.callback:
        command.callback = _at_level(command.callback)
    return command


def _choose(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    """Note the level, which holds for the commands below, too."""
    if value and ctx.meta.setdefault(_CHOSEN, option.name) != option.name:
        raise click.UsageError("--quiet and --verbose exclude each other")


def _at_level(callback: Callable[..., Any]) -> Callable[..., Any]:
    """The callback of a command, run at the level that was chosen; one within another is part of it."""

    @functools.wraps(callback)
    def run(*args: Any, **kwargs: Any) -> Any:
        ctx = click.get_current_context()
        level = "" if ctx.meta.get(_ENTERED) else ctx.meta.get(_CHOSEN, "")
        ctx.meta[_ENTERED] = True
        with ExitStack() as stack:
            if level == "quiet":
                nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
                stack.enter_context(redirect_stdout(nowhere))
                stack.enter_context(redirect_stderr(nowhere))
            elif level == "verbose":
                stack.enter_context(_shown_steps(ctx.command_path))
            return callback(*args, **kwargs)

    return run


@contextmanager
def _shown_steps(title: str) -> Iterator[None]:
    """Print the steps within, and behind them the output of the compilers that failed."""
    shown = _Printed()
    before = LOG.level
    LOG.addHandler(shown)
    LOG.setLevel(logging.INFO)
    try:
        with step(title):
            yield
    finally:
        LOG.removeHandler(shown)
        LOG.setLevel(before)
        shown.print_failures()


class _Printed(logging.Handler):
    """Prints records to the standard error, and keeps the libraries whose builds they tell of."""

    def __init__(self) -> None:
        super().__init__()
        self.libraries: list[Path] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        click.echo(record.getMessage(), err=True)
        args = record.args if isinstance(record.args, tuple) else ()
        self.libraries += [each for each in args if isinstance(each, Path)]

    def print_failures(self) -> None:
        """Print the logs of the builds that left one instead of a library."""
        for library in dict.fromkeys(self.libraries):
            log = library.with_suffix(".log")
            if log.is_file() and not library.is_file():
                click.echo(f"{log}:\n{log.read_text(encoding='utf-8', errors='replace')}", err=True)
