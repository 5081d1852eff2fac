"""The commands that measure the accuracy of functions."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusegen.cli.options import DEVICE, DTYPE, DTYPES, SPECS, WHERE, devices
from fusegen.errors import counted

if TYPE_CHECKING:
    from fusegen.certify.campaign import Verdict
    from fusegen.certify.findings import Evidence, Output

_SAMPLE = click.option(
    "--sample",
    type=click.IntRange(min=1),
    help="Try this many float32 inputs; nothing is written.",
)


@click.command()
@click.argument("specs", nargs=-1, metavar="[SPEC]...")
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
def certify(
    specs: tuple[str, ...], output: Path, device: str | None, dtypes: tuple[str, ...], sample: int | None,
    resume: bool, at: tuple[str, ...],
) -> None:  # fmt: skip
    """Test modules on every input against exact values and PyTorch, and write their certificates.

    A float32 function of one tensor is tried on all 2**32 inputs, 16-bit ones on all 2**16, others on a
    stratified sample. Errors are counted in ulp of the exact result. The certificate is written next to the
    module, as NAME.certificate.json. The exit status is 1 if a promise is broken.
    """
    from fusegen import access, build, library
    from fusegen.certify import campaign, certificate

    compiled = tuple(build.compiled_file(path) for path in library.find_all(specs, SPECS))
    order = campaign.Order(output, devices(device), dtypes, sample, resume)
    if at:
        click.echo(campaign.looked_at(compiled, order, tuple(map(_hexadecimal, at))), nl=False)
        return
    if sample is None:
        modules = (one.module(output) for one in compiled)
        access.require_writable(*map(certificate.path_of, modules))
    with _Bars() as bars:
        verdicts = list(bars.shown(campaign.campaign(compiled, order, bars)))
    broken = [verdict for verdict in verdicts if verdict.evidence.broken]
    for verdict in broken:
        for line in campaign.told(verdict):
            click.echo(line, err=True)
    if broken:
        click.echo(f"{counted(len(broken), 'promise')} broken, of {len(verdicts)}", err=True)
        sys.exit(1)


@click.command()
@click.argument("function", metavar="CALLABLE")
@click.option("--formula", required=True, help="What it should compute, as a spec's formula says it.")
@click.option("--inputs", default="x", help="The names of the tensors in the formula, with commas.")
@DEVICE
@DTYPE
@_SAMPLE
def audit(
    function: str,
    formula: str,
    inputs: str,
    device: str | None,
    dtypes: tuple[str, ...],
    sample: int | None,
) -> None:
    """Test any callable on every input against a formula: torch.nn.functional.gelu, or your own.

    CALLABLE is a dotted name below a module that can be imported here, and may fix arguments:
    "torch.nn.functional.gelu(approximate='tanh')".
    """
    from fusegen.certify import campaign

    names = tuple(name.strip() for name in inputs.split(","))
    order = campaign.Order(Path(), devices(device), dtypes or DTYPES, sample)
    with _Bars() as bars:
        list(bars.shown(campaign.audit(function, formula, names, SPECS, order, bars)))


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text) if "x" in text.lower() else float(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is not a number", param_hint="--at") from None


class _Bars:
    """Progress with the time left on a terminal, and a line for each verdict anywhere."""

    def __enter__(self) -> _Bars:
        from rich.console import Console

        from fusegen.cli.progress import bar

        self.console = Console(markup=False, highlight=False, soft_wrap=True)
        self.progress = bar(self.console)
        self.progress.start()
        self.task = self.progress.add_task("building", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def begin(self, title: str, inputs: int) -> None:
        """A new bar."""
        self.progress.reset(self.task, description=title, total=inputs)

    def advance(self, inputs: int) -> None:
        """Some more of it."""
        self.progress.advance(self.task, inputs)

    def shown(self, verdicts: Iterable[Verdict]) -> Iterable[Verdict]:
        """The verdicts, each printed as it comes."""
        for verdict in verdicts:
            for line in _lines(verdict.evidence):
                self.console.print(
                    f"{verdict.name:22} {verdict.device:4} {verdict.evidence.dtype:8} {line}"
                )
            yield verdict


def _lines(evidence: Evidence) -> Iterable[str]:
    """A line for each output: the largest errors and the number of misrounded results."""
    if evidence.undecided:
        yield f"{evidence.undecided:,} inputs undecided"
    inputs = f"all {evidence.inputs:,}" if evidence.every else f"{evidence.inputs:,}"
    for output in evidence.outputs:
        yield f"{_errors(output)}, of {inputs}"
    if evidence.beyond:  # of the judged range
        for output in evidence.beyond.outputs:
            yield f"beyond: {_errors(output)}, of {evidence.beyond.inputs:,}"


def _errors(output: Output) -> str:
    line = f"{output.name:12} {output.given.ulp:.4g} ulp, {output.given.misrounded:,} misrounded"
    theirs = output.eager
    return f"{line} (eager {theirs.ulp:.4g}, {theirs.misrounded:,})" if theirs else line
