"""The command that examines the tools and folders that fusegen needs."""

import sys
from dataclasses import asdict
from pathlib import Path

import click

from fusegen.cli.json_records import JSON, print_records, record
from fusegen.cli.options import WHERE, specs_folder

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
            remedy = f"; {each.remedy}" if each.remedy else ""
            state = click.style(f"{each.state:8}", fg=COLOURS[each.state])
            click.echo(f"{state} {each.name:13}{each.text}{remedy}")
    if failed:
        sys.exit(1)
