"""The journal of a run: a line of JSON for each problem, appended as soon as its outcome is known.

A run that was interrupted resumes from it: the outcome of a right candidate is taken if problem, candidate,
machine and options are the same as they were.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.kernelbench.accuracy import Accuracy, Measured
from benchmarks.kernelbench.candidates import Made
from benchmarks.kernelbench.errors import Errors
from benchmarks.kernelbench.report import plain
from benchmarks.kernelbench.session import RIGHT, Outcome
from benchmarks.kernelbench.timing import Times
from benchmarks.kernelbench.trials import Finding
from fusegen.evidence.bench.clock import Spread

BAD = (ValueError, LookupError, TypeError, AttributeError)  # of a line that is none of a journal


@dataclass(frozen=True)
class Journal:
    """A file of outcomes."""

    path: Path  # the file
    environment: Mapping[str, Any]  # the machine and the options of this run

    def key(self, problem: Path, made: Made | None) -> str:
        """Return the digest of all that decides the outcome of a problem but chance."""
        candidate = [made.path.as_posix(), made.text, made.refused] if made else []
        decides = [problem.stem, problem.read_text(encoding="utf-8"), candidate, dict(self.environment)]
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    def known(self) -> dict[str, Outcome]:
        """The outcomes of right candidates in the file, by key; a line that was cut off is left out."""
        if not self.path.exists():
            return {}
        found: dict[str, Outcome] = {}
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                row = json.loads(line)
                found[str(row["key"])] = outcome(row)
            except BAD:
                continue
        return {key: one for key, one in found.items() if one.state == RIGHT}

    def add(self, key: str, one: Outcome) -> None:
        """Append an outcome, and have it written to the disk."""
        row = {"key": key, "environment": dict(self.environment), **plain(one)}
        with self.path.open("a+b") as file:
            file.seek(0, os.SEEK_END)
            if file.tell() and _last(self.path) != b"\n":  # after a line that was cut off
                file.write(b"\n")
            file.write(json.dumps(row).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _last(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def outcome(row: Mapping[str, Any]) -> Outcome:
    """Return the outcome that a line holds.

    Raises:
        ValueError, LookupError, TypeError, AttributeError: it holds none.
    """
    accuracy, times = row["accuracy"], row["times"]
    return Outcome(
        str(row["problem"]),
        str(row["kind"]),
        str(row["candidate"]),
        str(row["state"]),
        tuple(map(_finding, row["findings"])),
        _accuracy(accuracy) if accuracy else None,
        Times(_spreads(times["spreads"]), str(times["said"]), float(times["compiling"])) if times else None,
        {str(phase): float(seconds) for phase, seconds in row["seconds"].items()},
    )


def _finding(held: Mapping[str, Any]) -> Finding:
    return Finding(str(held["check"]), str(held["said"]))


def _accuracy(held: Mapping[str, Any]) -> Accuracy:
    measured = (
        Measured(str(one["check"]), _errors(one["eager"]), _errors(one["ours"])) for one in held["measured"]
    )
    return Accuracy(tuple(measured), tuple(map(_finding, held["findings"])), int(held["limits"]))


def _errors(held: Mapping[str, Any]) -> Errors:
    return Errors(*(float(held[name]) for name in ("largest", "typical", "off")))


def _spreads(held: Mapping[str, Any]) -> dict[str, Spread]:
    return {str(name): _spread(one) for name, one in held.items()}


def _spread(held: Mapping[str, Any]) -> Spread:
    median, low, high = (float(held[part]) for part in ("median", "low", "high"))
    return Spread(median, low, high, int(held["turns"]))
