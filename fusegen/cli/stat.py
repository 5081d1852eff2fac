"""Differences in short: lines, kernels and certificates, as `check --stat` and summaries show them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fusegen.cli.json_records import Record
from fusegen.errors import counted

if TYPE_CHECKING:
    from fusegen.core.manifest import Kernels
    from fusegen.core.write import Change

PASSES = ("forward", "backward")
UNKNOWN = ("", "")  # in place of the digests of both passes
HOST = "host"  # in place of a pass: the Python around the kernels, which decides results, too


def lines(change: Change) -> dict[str, int]:
    """Return the numbers of lines that a change adds and removes."""
    before, after = ((text or "").splitlines() for text in (change.before, change.after))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    changed = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    added = sum(last - first for *_, first, last in changed)
    return {"added": added, "removed": sum(last - first for _, first, last, *_ in changed)}


def kernels(change: Change, before: Kernels, after: Kernels) -> dict[str, list[str]]:
    """Return the passes whose kernels a change of a module touches, by device; comments do not count.

    Both passes of a device count where the digests before the change are not known.
    """
    from fusegen.evidence.certify.digest import kernel_digest

    texts, found = (change.before or "", change.after or ""), {}
    for device, new in after.items():
        if len({kernel_digest(text, device) for text in texts}) > 1:
            known = zip(PASSES, before.get(device, UNKNOWN), new, strict=True)
            found[device] = [name for name, old, own in known if old != own] or [HOST]
    return found


def certificates(states: Mapping[str, str], changed: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the states of a certificate's parts once the changed kernels of its module are written."""
    return {device: "stale" if device in changed else state for device, state in states.items()}


def row(found: Record) -> str:
    """Return a difference in one line, as of git diff --stat."""
    parts = [f"{device} {' and '.join(names)}" for device, names in found["kernels"].items()]
    states = " and ".join(f"{device} {state}" for device, state in found["certificate"].items())
    parts += [f"certificate {states}"] * bool(states)
    lines = f"{found['file']}  +{found['added']} -{found['removed']}"
    return f"{lines}  {', '.join(parts)}" if parts else lines


def total(found: Record) -> str:
    """Return the number of differences and of their lines."""
    files = counted(found["differences"], "file")
    return f"{files}, {counted(found['added'], 'line')} added, {counted(found['removed'], 'line')} removed"
