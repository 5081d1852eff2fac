"""Times of runs that take turns: medians with their spread.

On a GPU a run is timed by CUDA events; what is in the L2 cache is overwritten before, which takes long
enough for the run to be waiting when it ends, so that no time to launch is counted. On the CPU it is wall
clock, or the time of the processors: what other processes take of these does not count in it.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

Run = Callable[[], Any]
Name = TypeVar("Name")
CUDA: Any = torch.cuda  # which declares no types for streams and events
WARM_UPS, FEWEST, MOST = 3, 11, 201  # turns
ROUNDS, ROUND = 7, 0.02  # of many calls in a row, and seconds that one takes at least
IN_GRAPH = 64  # runs that a CUDA graph holds
FLUSH = 2**31  # bytes


@dataclass(frozen=True, slots=True)
class Spread:
    """The median and the spread of several measurements."""

    median: float  # of all, in milliseconds
    # low, high: ends of the middle 80 %
    low: float
    high: float
    turns: int  # how many there were

    @property
    def noise(self) -> float:
        """Half the width of the middle 80 %, as a share of the median."""
        return (self.high - self.low) / 2 / self.median


def spread(taken: list[float]) -> Spread:
    """Return the spread of two measurements or more, in milliseconds."""
    tenths = statistics.quantiles(taken, n=10, method="inclusive")
    return Spread(statistics.median(taken), tenths[0], tenths[-1], len(taken))


def turns(
    runs: Mapping[Name, Run],  # under their names, of any type
    device: str,  # ``cpu`` or ``cuda``, or ``processor`` for the time that all threads take of the CPU
    seconds: float,  # the time for all of it; there are `FEWEST` turns at least
) -> dict[Name, Spread]:
    """Return the time of each run; the runs take turns.

    The order changes from turn to turn, so that no run always follows the same one.
    """
    return at_memory_offsets(1, lambda _: runs, device, seconds)


def at_memory_offsets(
    places: int,  # the number of places
    arranged: Callable[[int], Mapping[Name, Run]],  # returns the runs at one of them
    device: str,  # ``cpu`` or ``cuda``
    seconds: float,  # the time for all of it; there are `FEWEST` turns at least
) -> dict[Name, Spread]:
    """Return the time of each run, as of `turns`, with its tensors at several places in memory.

    The place of a tensor in a GPU's memory decides up to a per cent of the time to read it, and differs
    from process to process.
    """
    once = CLOCKS[device]()
    taken: dict[Name, list[float]] = defaultdict(list)
    for place in range(places):
        runs = arranged(place)
        names = list(runs)
        lap = 0.0
        for _ in range(WARM_UPS):
            begin = time.perf_counter()
            for name in names:
                once(runs[name])
            lap = time.perf_counter() - begin
        count = min(MOST, max(FEWEST, int(seconds / lap)))
        for turn in range(place, count, places):
            for name in _in_turn(names, turn):
                taken[name].append(once(runs[name]))
        del runs  # and with them their tensors, before others are made
    return {name: spread(several) for name, several in taken.items()}


def rounds(runs: Mapping[Name, Run], device: str, count: int) -> dict[Name, Spread]:
    """Return the time of each run, as of `turns`, over two turns or more of each."""
    once = CLOCKS[device]()
    taken: dict[Name, list[float]] = {name: [] for name in runs}
    for _ in range(WARM_UPS):
        for run in runs.values():
            once(run)
    for turn in range(count):
        for name in _in_turn(list(runs), turn):
            taken[name].append(once(runs[name]))
    return {name: spread(several) for name, several in taken.items()}


def calls(runs: Mapping[str, Run], device: str) -> dict[str, float]:
    """Return microseconds of a call by wall clock, of many in a row; the best round."""
    best = dict.fromkeys(runs, float("inf"))
    counts = {name: max(10, int(ROUND / max(_row(run, 10, device), 1e-7))) for name, run in runs.items()}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            best[name] = min(best[name], _row(run, counts[name], device))
    return {name: seconds * 1e6 for name, seconds in best.items()}


def in_graph(run: Run) -> float:
    """Return microseconds of a run in a CUDA graph of many; the best round."""
    side = CUDA.Stream()
    with CUDA.stream(side):
        run()
    CUDA.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(IN_GRAPH):
            run()
    replay = [_events(graph.replay) for _ in range(WARM_UPS + ROUNDS)]
    return min(replay) / IN_GRAPH * 1e3


def peak(run: Run, device: str) -> int | None:
    """Return the most bytes that a run holds at once beside what was there; nothing is known of the CPU."""
    if device != "cuda":
        return None
    run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return int(torch.cuda.max_memory_allocated() - before)


def _in_turn(names: list[Name], turn: int) -> list[Name]:
    """Return the names in the order of a turn, in which another one is first each time."""
    start = turn % len(names)
    return names[start:] + names[:start]


def _row(run: Run, count: int, device: str) -> float:
    """Return the seconds of a call, of `count` in a row."""
    begin = time.perf_counter()
    for _ in range(count):
        run()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count


def _timed(run: Run) -> float:
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) * 1e3


def _timed_of_processors(run: Run) -> float:
    begin = time.process_time()
    run()
    return (time.process_time() - begin) * 1e3


def _timed_on_gpu() -> Callable[[Run], float]:
    free, _ = torch.cuda.mem_get_info()
    flush = torch.empty(min(FLUSH, free // 4), dtype=torch.uint8, device="cuda")

    def once(run: Run) -> float:
        flush.zero_()
        return _events(run)

    return once


def _events(run: Run) -> float:
    start, end = (CUDA.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


CLOCKS: Mapping[str, Callable[[], Callable[[Run], float]]] = {
    "cpu": lambda: _timed,
    "processor": lambda: _timed_of_processors,
    "cuda": _timed_on_gpu,
}
