"""Bounds on work that hold on any machine: counted calls instead of seconds, and shares of long tables."""

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import pytest

FULL = bool(os.environ.get("FUSEGEN_FULL"))  # nothing is left out
SHARE = 5  # one of so many runs by default
HANG = 900  # seconds: a test, or a process that it started, that takes longer has stopped for ever


def examples(count: int) -> int:
    """Return how many random examples are tried: with FUSEGEN_FULL so many, else a share of them."""
    return count if FULL else math.ceil(count / SHARE)


def share(values: Any) -> Any:
    """Return a tensor or a list, without FUSEGEN_FULL a share of it that is spread evenly."""
    return values if FULL else values[::SHARE]


def thinned(rows: Iterable[str]) -> Sequence[object]:
    """Return the rows of a table, of which a share runs by default and the others are marked `full`."""
    return [pytest.param(row, marks=pytest.mark.full if k % SHARE else ()) for k, row in enumerate(rows)]


def waited_for(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + HANG
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


class _Exceeded(BaseException):
    """Goes through every ``except Exception``."""


@dataclass
class Work:
    """The number of calls of Python functions that a block has made."""

    calls: int = 0


@contextmanager
def budget(calls: int) -> Iterator[Work]:
    """A block that fails as soon as it has called more Python functions than it may.

    The count is the same on a slow machine and on a fast one. It does not grow inside one long call of a C
    function, so that an alarm ends the block after `HANG` seconds.
    """
    work, before = Work(), sys.gettrace()

    def count(frame: FrameType, event: str, argument: object) -> None:
        work.calls += 1
        if work.calls > calls:
            raise _Exceeded

    def hangs(number: int, frame: FrameType | None) -> None:
        raise _Exceeded

    handler = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANG)
    sys.settrace(count)
    try:
        yield work
    except _Exceeded:
        raise AssertionError(f"it takes more than {calls:,} calls, or hangs") from None
    finally:
        sys.settrace(before)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
