"""The command that examines the tools and folders that fusegen needs."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusegen.cli.json_records import JSON, print_records, record
from fusegen.cli.options import WHERE, specs_folder

if TYPE_CHECKING:
    from fusegen.tools.doctor import Finding

COLOURS = {"ok": "green", "missing": "yellow", "wrong": "red"}


@click.command()
@WHERE
@JSON
def doctor(output: Path, as_json: bool) -> None:
    """Examine PyTorch, GPUs, compilers and folders.

    Print a line for each, with a remedy.

    The exit status is 1 if something is missing or wrong that a build for the CPU needs.
    """
    from fusegen.tools.doctor import Project, findings

    failed = False
    for each in findings(Project(output, specs_folder())):
        failed |= each.needed and each.state != "ok"
        if as_json:
            print_records([record("finding", **asdict(each))])
        else:
            _print(each)
    if failed:
        sys.exit(1)


def _print(found: Finding) -> None:
    remedy = f"; {found.remedy}" if found.remedy else ""
    state = click.style(f"{found.state:8}", fg=COLOURS[found.state])
    click.echo(f"{state} {found.name:13}{found.text}{remedy}")
