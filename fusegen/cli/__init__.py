"""The command line: commands, their output, and the exit status.

Status 0: done. 1: ``check`` found a difference, ``doctor`` something missing, ``certify`` a broken promise,
``bench`` something wrong or slower, ``lift`` nothing that it could compare. 2: a mistake in a spec or in
the command.
"""

import errno
import os
from pathlib import Path
from typing import Any

import click

from fusegen import __version__
from fusegen.cli import (
    benching,
    building,
    checking,
    cleaning,
    diagnosing,
    evidence,
    folders,
    hub,
    libraries,
    lift_command,
    reporting,
    showing,
    streams,
    tuning,
)
from fusegen.cli.levels import levelled
from fusegen.core import config
from fusegen.core.access import refused
from fusegen.errors import FusegenError, SpecErrors

COMMANDS = (
    *(building.build, libraries.compile_, hub.hub, checking.check, showing.list_, lift_command.lift),
    *(evidence.certify, evidence.audit, benching.bench, tuning.tune, reporting.report),
    *(showing.explain, showing.show, showing.new, showing.schema),
    *(diagnosing.doctor, cleaning.clean),
)
EXTRAS = {  # of a missing package, the extra that has it
    "torch": "torch", "ninja": "torch", "flint": "certify", "matplotlib": "bench", "onnx": "onnx",
    "onnxscript": "onnx", "kernels": "hub", "transformers": "hub",
}  # fmt: skip
BACKGROUND = "FUSEGEN_BACKGROUND"  # of runtime/background.py
NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
WHOLE = {"certify": "certify", "audit": "certify", "bench": "bench"}  # extras of commands, with torch


class _Group(click.Group):
    """Prints a user's mistakes as they are and ends with status 2."""

    def invoke(self, ctx: click.Context) -> Any:
        os.environ.setdefault(BACKGROUND, "0")  # a build there would slow down what is timed
        try:
            return super().invoke(ctx)
        except (FusegenError, SpecErrors) as error:
            ctx.meta.get(checking.PRINTER, lambda error: click.echo(error, err=True))(error)
            ctx.exit(2)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in EXTRAS:
                raise
            extra = EXTRAS[package]
            extra = WHOLE.get(str(ctx.invoked_subcommand), extra) if extra == "torch" else extra
            click.echo(f"this needs {package}: pip install 'fusegen[{extra}]'", err=True)
            ctx.exit(2)
        except OSError as error:
            name, act = error.filename, "used"
            if error.errno in NO_SPACE and name is None:  # files are written under their names
                name, act = "standard output", "written"
            if not isinstance(name, (str, bytes)):  # of no file, as of a closed pipe
                raise
            click.echo(refused(error, Path(os.fsdecode(name)), act), err=True)
            ctx.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fusegen")
def main() -> None:
    """Compile activations and pointwise chains to readable PyTorch kernels."""
    before, ctx = config.current(), click.get_current_context()
    ctx.call_on_close(lambda: config.use(before))
    ctx.call_on_close(streams.use_plain_letters())
    try:
        config.use(config.found(Path()))
    except SpecErrors as error:
        ctx.meta[folders.MISTAKES] = error  # for the command, whose options say how they are printed


for command in COMMANDS:
    main.add_command(command)
levelled(main)
folders.located(main)
