"""Processes that share a GPU: what is timed has it alone, everything else runs side by side."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

NAMES = ("next", "gpu")  # of the files that are locked


@dataclass(frozen=True)
class Turns:
    """The locks of a run, in files of a folder; without a folder one process has the GPU."""

    folder: Path | None = None

    def alone(self) -> AbstractContextManager[None]:
        """Return a context in which no other process of the run has work for the GPU."""
        return self._locked(fcntl.LOCK_EX)

    def shared(self) -> AbstractContextManager[None]:
        """Return a context in which nothing is timed."""
        return self._locked(fcntl.LOCK_SH)

    def _locked(self, how: int) -> AbstractContextManager[None]:
        return nullcontext() if self.folder is None else _waiting(self.folder, how)


@contextmanager
def _waiting(folder: Path, how: int) -> Iterator[None]:
    """Wait for the lock of the GPU as the next one in line, so that many who share it keep nobody off."""
    first, gpu = (folder / name for name in NAMES)
    with first.open("w") as line, gpu.open("w") as held:
        fcntl.flock(line, fcntl.LOCK_EX)
        fcntl.flock(held, how)
        fcntl.flock(line, fcntl.LOCK_UN)
        yield  # closing a file unlocks it
