"""Verdicts of `certify` and `audit`, printed as they come: lines with a bar, or records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fusegen.cli.json_records import print_records, record

if TYPE_CHECKING:
    from fusegen.evidence.certify.certification import Verdict
    from fusegen.evidence.certify.findings import Evidence, Output


class Bars:
    """Progress with the time left on a terminal, and a line for each verdict anywhere."""

    def __enter__(self) -> Bars:
        from rich.console import Console

        from fusegen.cli.progress_bar import bar

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
        """Yield the verdicts, each printed as it comes."""
        for verdict in verdicts:
            for line in _lines(verdict.evidence):
                self.console.print(
                    f"{verdict.name:22} {verdict.device:4} {verdict.evidence.dtype:8} {line}"
                )
            yield verdict


def recorded(verdicts: Iterable[Verdict]) -> Iterable[Verdict]:
    """Yield the verdicts, each printed as a record as it comes."""
    from fusegen.evidence.certify import figures

    for verdict in verdicts:
        where = {"device": verdict.device, "dtype": verdict.evidence.dtype}
        shown = figures.shown(verdict.evidence)
        print_records([record("verdict", spec=verdict.name, **where, **shown)])
        yield verdict


def _lines(evidence: Evidence) -> Iterable[str]:
    """Yield a line for each output: the largest errors and the number of misrounded results."""
    if evidence.undecided:
        yield f"{evidence.undecided:,} inputs undecided"
    inputs = f"all {evidence.inputs:,}" if evidence.every else f"{evidence.inputs:,}"
    for output in evidence.outputs:
        of = f"{output.results:,} of {inputs} rows" if output.results else inputs
        yield f"{_errors(output)}, of {of}"
    if evidence.beyond:  # of the judged range
        for output in evidence.beyond.outputs:
            yield f"beyond: {_errors(output)}, of {evidence.beyond.inputs:,}"


def _errors(output: Output) -> str:
    line = f"{output.name:12} {output.given.ulp:.4g} ulp, {output.given.misrounded:,} misrounded"
    (ours, eager), theirs = output.local.over, output.eager
    line += f", {ours:,} above {'the bound' if output.results else '4 ulp'}" if ours else ""
    more = f", {eager:,}" if ours else ""
    return f"{line} (eager {theirs.ulp:.4g}, {theirs.misrounded:,}{more})" if theirs else line
