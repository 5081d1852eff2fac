"""A function of one float32 on all 2**32 inputs: kernels compute in chunks, the filter bounds each.

Inputs that the filter leaves open, and those of the largest errors, go to `enclosures`.
"""

import ctypes
import os
import struct
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor

from fusegen.evidence.certify import exact
from fusegen.evidence.certify.cells import CELL, Cells
from fusegen.evidence.certify.findings import Accuracy, InputsDone, Output, ReferenceMismatch, Subject
from fusegen.evidence.certify.interval_filter import ROOM, IntervalFilter, SweepTotals, Task
from fusegen.evidence.certify.slopes import value_and_slopes
from fusegen.evidence.certify.tried_inputs import runs

EVERY = 2**32
RUNS = 256  # of a sample, at least
CHUNK = {"cuda": 2**26, "cpu": 2**22}
SHARE = 2 * CELL  # of a chunk, for one thread of the CPU: no two threads share a cell
MOST_OPEN = 2**25  # inputs that are left to enclosures, which decide about 100,000 a second on one core
Columns = list[list[Tensor]]  # value and slope, ours and eager's


class OpenInputs:
    """Inputs that the filter did not decide: all, or every second, fourth, ... of more than `MOST_OPEN`.

    They are copied into one tensor: small ones that stay would fragment the memory of large ones that go.
    """

    def __init__(self) -> None:
        self.kept = torch.empty(MOST_OPEN + ROOM, dtype=torch.int32)  # with room for those that come
        self.step, self.seen, self.count = 1, 0, 0  # of how many one is kept, how many came, are kept

    def add(self, patterns: Tensor) -> None:
        """Take in at most `ROOM` bit patterns, and halves those that are kept while they are too many."""
        chosen = patterns[-self.seen % self.step :: self.step]
        self.seen += len(patterns)
        self.kept[self.count : self.count + len(chosen)] = chosen
        self.count += len(chosen)
        while self.count > MOST_OPEN:
            half = self.kept[: self.count : 2].clone()
            self.count, self.step = len(half), 2 * self.step
            self.kept[: self.count] = half

    def ordered(self) -> Tensor:
        """Return those that are kept, in order."""
        return self.kept[: self.count].sort().values


@dataclass(frozen=True)
class Swept:
    """The findings of a sweep."""

    totals: SweepTotals  # the sums and the extremes
    inputs: int  # the number of bit patterns that were tried
    # inputs that the filter did not decide, as float32; no more than `MOST_OPEN`, evenly spread
    open: Tensor
    lost: int  # the number of further undecided inputs
    cells: Cells  # the largest errors and the numbers of errors in each cell, without the open inputs


def sweep(
    subject: Subject,  # the function and its formula, of one input
    interval_filter: IntervalFilter,  # of its formula
    device: str,  # ``cpu`` or ``cuda``; where the subject computes. The filter prefers a GPU
    count: int,  # of inputs; fewer than 2**32 are spread over all of them
    progress: InputsDone,  # receives the number of inputs as they are done
) -> Swept:
    """Evaluate a function of one float32 on `count` bit patterns; all of them if there are no more."""
    chunk = CHUNK[device] if count >= EVERY else run_of(count)
    starts = runs(min(count, EVERY), chunk)
    chunks = ((start, _columns(subject, start, chunk, device)) for start in starts)
    swept = _on_cuda if interval_filter.place(device) == "cuda" else _on_cpu
    totals, opened, cells, done = swept(interval_filter, chunks, chunk, progress)
    listed = opened.ordered()
    return Swept(totals, done, listed.view(torch.float32), int(totals.open) - len(listed), cells)


def run_of(count: int) -> int:
    """Return the inputs of a run of a sample: as many as leave RUNS runs, and 2**16 at most."""
    return 1 << max(0, min(16, (count // RUNS).bit_length() - 1))


def mismatch(
    totals: SweepTotals,  # of the sweep
    # from an input, the formula's value and the reference's, as hexadecimal floats
    at: Callable[[float], tuple[str, str]],
) -> ReferenceMismatch | None:
    """Return the inputs where the reference is another function; None if it is not."""
    if totals.mismatches == 0:
        return None
    order = totals.first_mismatch
    first = _float(order & 0x7FFFFFFF if order >> 31 else ~order & 0xFFFFFFFF)
    worst = _float(totals.worst_mismatch & 0xFFFFFFFF)
    return ReferenceMismatch(totals.mismatches, (first.hex(), *at(first)), (worst.hex(), *at(worst)))


def whole(
    output: Output,  # at the worst inputs, by enclosures
    left: list[Output],  # at the inputs that the filter left open, by enclosures; these are counted
    found: Swept,  # the counts at all other inputs, by the filter
    k: int,  # the place of the output
) -> Output:
    """Return a float32 output."""
    totals = found.totals

    def counted(worst: Accuracy, parts: list[Accuracy], who: int) -> Accuracy:
        sums = Accuracy(
            misrounded=totals.misrounded[k][who],
            overflows=totals.overflows[k][who],
            monotonicity_breaks=totals.monotonicity_breaks[who] if k == 0 else 0,
        )
        whole = reduce(exact.joined, parts, sums)
        rows = exact.joined(whole, Accuracy(worst.worst)).worst
        return replace(whole, worst=rows, beyond_neighbour=0)  # the filter does not count it

    ends = (-totals.lowest_given[k], totals.highest_given[k], -totals.lowest[k], totals.highest[k])
    inside = torch.tensor(ends[2:], dtype=torch.float64).to(torch.float32).tolist()
    eager = [part.eager for part in left if part.eager]
    return replace(
        output,
        given=counted(output.given, [part.given for part in left], 0),
        eager=output.eager and counted(output.eager, eager, 1),
        bits_differ=totals.bits_differ[k],
        worse_than_eager=totals.worse_than_eager[k] + sum(part.worse_than_eager for part in left),
        range=(ends[0], ends[1], inside[0], inside[1]) if k == 0 else None,
    )


def _on_cuda(
    interval_filter: IntervalFilter, chunks: Iterable[tuple[int, Columns]], chunk: int, progress: InputsDone
) -> tuple[SweepTotals, OpenInputs, Cells, int]:
    empty = torch.frombuffer(bytearray(SweepTotals.empty()), dtype=torch.uint8)
    totals, cells = empty.cuda(), Cells.on("cuda")
    opened = torch.empty(ROOM, dtype=torch.int32, device="cuda")
    done = 0
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    for start, computed in chunks:
        columns = [[t.cuda() for t in column] for column in computed]
        task = _task(columns, 0, chunk, start, opened, cells)
        error = interval_filter.cuda.sweep(ctypes.byref(task), ctypes.c_void_p(totals.data_ptr()), stream)
        if error:
            raise RuntimeError(f"the filter could not be launched: CUDA error {error}")
        done += chunk
        torch.cuda.synchronize()
        progress(chunk)
    found = SweepTotals.from_buffer_copy(bytes(totals.cpu().numpy()))
    listed = OpenInputs()
    listed.add(opened[: min(found.open, ROOM)].cpu())
    return found, listed, cells.on_host(), done


def _on_cpu(
    interval_filter: IntervalFilter, chunks: Iterable[tuple[int, Columns]], chunk: int, progress: InputsDone
) -> tuple[SweepTotals, OpenInputs, Cells, int]:
    whole, opened, cells = SweepTotals.empty(), OpenInputs(), Cells.on("cpu")
    done = 0
    library = interval_filter.cpu
    rooms = torch.split(torch.empty(chunk, dtype=torch.int32), SHARE)

    def share_swept(columns: Columns, first: int, start: int) -> tuple[SweepTotals, Tensor]:
        totals, room = SweepTotals.empty(), rooms[first // SHARE]
        task = _task(columns, first, len(room), start + first, room, cells)
        library.sweep(ctypes.byref(task), ctypes.byref(totals), None)
        return totals, room[: totals.open]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start, columns in chunks:
            shares = [pool.submit(share_swept, columns, first, start) for first in range(0, chunk, SHARE)]
            found = [share.result() for share in shares]
            whole = _merged([whole, *(totals for totals, _ in found)])
            for _, some in found:
                opened.add(some)
            done += chunk
            progress(chunk)
    return whole, opened, cells, done


def _columns(subject: Subject, start: int, count: int, device: str) -> Columns:
    bits = torch.arange(start, start + count, dtype=torch.int64, device=device).to(torch.int32)
    x = bits.view(torch.float32)
    functions = [subject.given, *([subject.eager] if subject.eager else [])]
    return [[t.contiguous() for t in value_and_slopes(function, (x,))] for function in functions]


def _task(columns: Columns, first: int, count: int, start: int, opened: Tensor, cells: Cells) -> Task:
    pairs: list[list[int | None]] = [[t.data_ptr() + 4 * first for t in column] for column in columns]
    pairs += [[None, None]] * (2 - len(pairs))
    given, eager = ((ctypes.c_void_p * 2)(*pair) for pair in pairs)
    held = (ctypes.c_void_p * 4)(*cells.addresses)
    return Task(given, eager, count, start, opened.data_ptr(), opened.numel(), held)


def _merged(several: list[SweepTotals]) -> SweepTotals:
    whole = SweepTotals.empty()
    for totals in several:
        for k in range(2):
            for who in range(2):
                whole.misrounded[k][who] += totals.misrounded[k][who]
                whole.overflows[k][who] += totals.overflows[k][who]
            whole.bits_differ[k] += totals.bits_differ[k]
            whole.worse_than_eager[k] += totals.worse_than_eager[k]
            for name in ("lowest", "highest", "lowest_given", "highest_given"):
                getattr(whole, name)[k] = max(getattr(whole, name)[k], getattr(totals, name)[k])
        for who in range(2):
            whole.monotonicity_breaks[who] += totals.monotonicity_breaks[who]
        whole.mismatches += totals.mismatches
        whole.first_mismatch = min(whole.first_mismatch, totals.first_mismatch)
        whole.worst_mismatch = max(whole.worst_mismatch, totals.worst_mismatch)
        whole.open += totals.open
    return whole


def _float(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])
