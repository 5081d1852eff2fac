"""The kernels of candidates, built before anything is measured, by several processes.

A build sets environment variables of its process, so that the threads of one process build one after the
other. No kernel runs here, and no tensor is made.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from benchmarks.kernelbench.candidates import Made
from benchmarks.kernelbench.problem import sentence

KERNELS = ("forward", "backward")
ACTIVATION = "KERNELS"  # the name of what loads them, in a standalone module


@dataclass(frozen=True)
class Job:
    """A kernel to build."""

    candidate: str  # the name of its candidate
    text: str  # of the candidate
    kernel: str  # ``forward`` or ``backward``
    device: str  # ``cpu`` or ``cuda``


@dataclass(frozen=True)
class Built:
    """A kernel after its build."""

    # candidate, kernel: as of `Job`
    candidate: str
    kernel: str
    seconds: float  # that the build took; a small part of one if it had been built before
    failure: str  # the failure in a sentence; empty if there is none


def jobs(candidates: Iterable[Made], device: str) -> tuple[Job, ...]:
    """Return the kernels of some candidates; a module that was written by hand has none."""
    distinct = {made.text: made.path.stem for made in candidates if not made.refused}
    able = {text: name for text, name in distinct.items() if f"\n{ACTIVATION} = " in text}
    return tuple(Job(name, text, kernel, device) for text, name in able.items() for kernel in KERNELS)


def built(of: tuple[Job, ...], processes: int) -> Iterator[Built]:
    """Yield the kernels, each as soon as it is built; the trials report a build that fails once more.

    Args:
        of: what to build.
        processes: how many build at a time; one builds in this process.
    """
    if processes == 1 or len(of) < 2:
        yield from map(build, of)
        return
    context = multiprocessing.get_context("spawn")  # no copy of a process that has threads
    with ProcessPoolExecutor(min(processes, len(of)), context) as pool:
        due = {pool.submit(build, job): job for job in of}
        for done in as_completed(due):
            try:
                yield done.result()
            except BrokenProcessPool:
                yield Built(due[done].candidate, due[done].kernel, 0.0, "a process that builds has ended")


def build(job: Job) -> Built:
    """Build one kernel in this process, unless this machine has built it before."""
    begin, failure = time.perf_counter(), ""
    own: dict[str, Any] = {}
    try:
        exec(job.text, own)
        own[ACTIVATION].load(job.kernel, job.device)
    except Exception as error:  # of the candidate's code
        failure = sentence(error)
    return Built(job.candidate, job.kernel, time.perf_counter() - begin, failure)
