"""Differences in short: lines, kernels and certificates, as `check --stat` and summaries show them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from fusegen.cli.records import Record
from fusegen.errors import counted

if TYPE_CHECKING:
    from fusegen.write import Change

SOURCES = {"cuda": "CUDA_SOURCE", "cpu": "CPU_SOURCE"}
PASSES = ("forward", "backward")
HOST = "host"  # in place of a pass: the Python around the kernels, which decides results, too


def lines(change: Change) -> dict[str, int]:
    """The numbers of lines that a change adds and removes."""
    before, after = ((text or "").splitlines() for text in (change.before, change.after))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    changed = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    added = sum(last - first for *_, first, last in changed)
    return {"added": added, "removed": sum(last - first for _, first, last, *_ in changed)}


def kernels(change: Change) -> dict[str, list[str]]:
    """The passes whose kernels a change of a module touches, by device; comments do not count.

    A launch table, or a function that both passes may call, counts for both.
    """
    from fusegen.certify.digest import kernel_digest

    before, after = change.before or "", change.after or ""
    found = {}
    for device in SOURCES:
        if kernel_digest(before, device) != kernel_digest(after, device):
            old, new = (_by_pass(text, device) for text in (before, after))
            found[device] = [name for name in PASSES if old[name] != new[name]] or [HOST]
    return found


def _by_pass(module: str, device: str) -> dict[str, list[str]]:
    """The statements of a device's C++, without comments, by the passes whose kernels they may decide."""
    from fusegen.certify.digest import sources
    from fusegen.headers import without_comments

    text = without_comments(sources(module).get(SOURCES[device], ""))
    found: dict[str, list[str]] = {name: [] for name in PASSES}
    statement: list[str] = []
    for line in [*text.splitlines(), ""]:
        inside = line.startswith((" ", "}")) or (statement and statement[-1].startswith("template"))
        if not inside and statement:
            named = [name for name in PASSES if name in " ".join(statement[:2]).lower()]
            for name in named[-1:] or PASSES:
                found[name].append("\n".join(statement))
            statement = []
        statement.append(line)
    return found


def certificates(states: Mapping[str, str], changed: Mapping[str, list[str]]) -> dict[str, str]:
    """The states of the parts of a certificate once the module is written.

    Args:
        states: those of the module as it is.
        changed: its kernels that differ, as of `kernels`.
    """
    return {device: "stale" if device in changed else state for device, state in states.items()}


def row(found: Record) -> str:
    """A difference in one line, as of git diff --stat."""
    parts = [f"{device} {' and '.join(names)}" for device, names in found["kernels"].items()]
    states = " and ".join(f"{device} {state}" for device, state in found["certificate"].items())
    parts += [f"certificate {states}"] * bool(states)
    lines = f"{found['file']}  +{found['added']} -{found['removed']}"
    return f"{lines}  {', '.join(parts)}" if parts else lines


def total(found: Record) -> str:
    """The number of differences and of their lines."""
    files = counted(found["differences"], "file")
    return f"{files}, {counted(found['added'], 'line')} added, {counted(found['removed'], 'line')} removed"


def print_row(found: Record) -> None:
    """Print a difference in one line."""
    click.echo(row(found))
