"""The commands that measure the accuracy of functions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fusegen.cli import printed_verdicts
from fusegen.cli.json_records import JSON
from fusegen.cli.options import DEVICE, DTYPE, DTYPES, SEVERAL_SPECS, WHERE, devices, specs_folder
from fusegen.errors import counted

if TYPE_CHECKING:
    from fusegen.evidence.certify.certification import CertifyOptions, Verdict

_SAMPLE = click.option(
    "--sample",
    type=click.IntRange(min=1),
    help="Test this number of float32 inputs; no certificate is written.",
)


@click.command()
@SEVERAL_SPECS
@WHERE
@DEVICE
@DTYPE
@_SAMPLE
@click.option(
    "--resume", is_flag=True, help="Skip dtypes that a certificate of the same kernel already has."
)
@click.option(
    "--at",
    "at",
    multiple=True,
    metavar="X",
    help="Show the error at one input, in decimals or as float.hex writes it; once for each tensor.",
)
@click.option(
    "--random",
    "chains",
    type=click.IntRange(min=1),
    metavar="N",
    help="Certify N random chains on samples instead, and print a table; no certificate is written.",
)
@click.option("--worst", is_flag=True, help="Print the inputs with the largest errors of each output.")
@click.option("--seed", default=0, show_default=True, help="The seed of the first random chain.")
@JSON
def certify(specs: tuple[str, ...], **given: Any) -> None:
    """Test modules on every input, and write their certificates.

    They are tested against exact values and PyTorch.

    A float32 function of one tensor is tested on all 2**32 inputs, 16-bit ones on all 2**16, others on a
    stratified sample. Errors are counted in ulp of the exact result. The certificate is written next to the
    module, as NAME.certificate.txt. The exit status is 1 if a promise is broken.
    """
    from fusegen.core import access
    from fusegen.evidence.certify import certification, verdicts
    from fusegen.evidence.certify.kernels_of_modules import paths_of
    from fusegen.language import library
    from fusegen.project import build

    arguments = CertifyArguments(**given)
    options = certification.CertifyOptions(
        arguments.output, devices(arguments.device), arguments.dtypes, arguments.sample, arguments.resume
    )
    if arguments.as_json and (arguments.chains or arguments.at):
        raise click.UsageError("--json takes no --random and no --at")
    if arguments.chains:
        if specs or arguments.at or arguments.resume:
            raise click.UsageError("--random takes no SPEC, no --at and no --resume")
        _certify_random(range(arguments.seed, arguments.seed + arguments.chains), options)
        return
    paths = library.find_all(specs, specs_folder())
    if arguments.at:
        _look(arguments.at, paths, options)
        return
    compiled = tuple(map(build.compiled_either, paths))
    if arguments.sample is None:
        access.require_writable(*(path for one in compiled for path in paths_of(one, arguments.output)))
    with printed_verdicts.Bars() as bars:
        shown = printed_verdicts.recorded if arguments.as_json else bars.shown
        found = list(shown(certification.certify_all(compiled, options, bars)))
    if arguments.worst and not arguments.as_json:
        click.echo("\n".join(line for verdict in found for line in verdicts.worst(verdict)))
    _end(found)


def _look(at: tuple[str, ...], paths: Sequence[Path], options: CertifyOptions) -> None:
    """Print the errors at one input."""
    from fusegen.evidence.certify import certification
    from fusegen.project import build

    numbers = tuple(map(_hexadecimal, at))
    told = certification.looked_at(tuple(map(build.compiled_file, paths)), options, numbers)
    if not told:
        given = f"{counted(len(at), 'number')}, and each tensor of an input has one"
        raise click.BadParameter(given, param_hint="--at")
    click.echo(told, nl=False)


def _end(verdicts: list[Verdict]) -> None:
    """Print the broken promises; with any the exit status is 1."""
    from fusegen.evidence.certify import verdicts as told

    broken = [verdict for verdict in verdicts if verdict.evidence.broken]
    for verdict in broken:
        click.echo("\n".join(told.told(verdict)), err=True)
    if broken:
        click.echo(f"{counted(len(broken), 'promise')} broken, of {len(verdicts)}", err=True)
        sys.exit(1)


def _certify_random(seeds: range, options: CertifyOptions) -> None:
    """Print the tables of random chains; the exit status is 1 if a promise is broken."""
    from fusegen.evidence.certify import random_chains

    broken = False
    for line, breaks in random_chains.page(seeds, options):
        click.echo(line)
        broken |= breaks
    if broken:
        sys.exit(1)


@dataclass(frozen=True)
class CertifyArguments:
    """The arguments of `certify`, as its help describes them."""

    output: Path
    device: str | None
    dtypes: tuple[str, ...]
    sample: int | None
    resume: bool
    at: tuple[str, ...]
    chains: int | None
    worst: bool
    seed: int
    as_json: bool


@click.command()
@click.argument("function", metavar="CALLABLE", required=False)
@click.option("--formula", help="The formula of the callable, as a spec has it.")
@click.option("--inputs", help="The names of the tensors in the formula, with commas; x without it.")
@click.option("--suite", type=click.Choice(["torch"]), help="Test PyTorch's activations, and print a page.")
@DEVICE
@DTYPE
@_SAMPLE
def audit(function: str | None, **given: Any) -> None:
    """Test any callable on every input against a formula.

    A callable is torch.nn.functional.gelu, or your own.

    Of a float32 function of one tensor the cells with errors above 4 ulp are counted, each a 64th of a
    binade; of others the inputs.

    CALLABLE is a dotted name below a module that can be imported here, and may fix arguments:
    "torch.nn.functional.gelu(approximate='tanh')".
    """
    from fusegen.evidence.certify import certification, subject
    from fusegen.evidence.certify import suite as activations

    arguments = AuditArguments(**given)
    options = certification.CertifyOptions(
        Path(), devices(arguments.device), arguments.dtypes, arguments.sample
    )
    if arguments.suite:
        if arguments.formula or arguments.inputs:
            raise click.UsageError("--suite has formulas of its own; leave --formula and --inputs out")
        for line in activations.page((function,) if function else (), specs_folder(), options):
            click.echo(line)
        return
    if function is None or arguments.formula is None:
        raise click.UsageError("audit takes a CALLABLE and its --formula, or --suite torch")
    names = tuple(name.strip() for name in (arguments.inputs or "x").split(","))
    one = subject.of_callable(function, subject.named(function), arguments.formula, names, specs_folder())
    with printed_verdicts.Bars() as bars:
        chosen = replace(options, dtypes=options.dtypes or DTYPES)
        list(bars.shown(certification.audit(one, chosen, bars)))


@dataclass(frozen=True)
class AuditArguments:
    """The arguments of `audit`, as its help describes them."""

    formula: str | None
    inputs: str | None
    suite: str | None
    device: str | None
    dtypes: tuple[str, ...]
    sample: int | None


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text) if "x" in text.lower() else float(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is not a number", param_hint="--at") from None
