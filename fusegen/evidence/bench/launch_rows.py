"""From the times of launches to the rows of a launch table."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fusegen.core.launch import Key, Launch, Launches, Table
from fusegen.evidence.bench.clock import Spread

GAIN, OWN_GAIN = 0.02, 0.04  # of the time: what a row must gain, and a kernel's own on that of its class
MOST_NOISE = 0.1
Times = dict[Launch, Spread]


@dataclass(frozen=True)
class Trial:
    """The times of a kernel's launches at one size."""

    kernel: str  # its name
    cost: str  # the class of its costs
    bits: int  # of an element
    kib: int  # of a tensor
    now: Launch  # the launch that the table says
    times: Times  # of each launch

    def best(self, now: Launch, gain: float) -> Launch:
        """The fastest launch, if it gains so much on another, and more than the noise; else the other."""
        noise = min(self.times[now].noise, MOST_NOISE)
        return faster(
            now, {launch: spread.median for launch, spread in self.times.items()}, max(gain, noise)
        )

    def gain(self, launch: Launch) -> float:
        """Return the time that a launch saves, as a fraction of the time of the table's."""
        return 1 - self.times[launch].median / self.times[self.now].median


def faster(now: Launch, times: Mapping[Launch, float], noise: float) -> Launch:
    """The launch that takes the shortest time; the present one unless it gains more than the noise."""
    best = min(times, key=lambda launch: times[launch])
    return best if times[best] < times[now] * (1 - noise) else now


def at(rows: Launches, kib: int) -> Launch:
    """Return the launch that rows say for a size, for any size."""
    row = next(row for row in rows if row.kib is None or kib <= row.kib)
    return replace(row, kib=None)


def by_kernel(found: Iterable[Trial]) -> dict[tuple[str, int], list[Trial]]:
    """Return trials by kernel and bits, the smallest size first."""
    grouped: dict[tuple[str, int], list[Trial]] = defaultdict(list)
    for trial in sorted(found, key=lambda t: t.kib):
        grouped[trial.kernel, trial.bits].append(trial)
    return grouped


def own_rows(
    found: Iterable[Trial],  # what was measured
    which: int,  # the chip
    table: Table,  # what these kernels take without rows of their own
    gain: float,  # how much better, at a size, as a share of the time
) -> dict[Key, Launches]:
    """Return the rows of kernels by their names, where others than the table's are better."""
    rows: dict[Key, Launches] = {}
    for (kernel, bits), several in by_kernel(found).items():
        shared = table.at(which, kernel, several[0].cost, bits)
        now = {trial.kib: at(shared, trial.kib) for trial in several}
        best = {trial.kib: trial.best(now[trial.kib], gain) for trial in several}
        if best != now:
            rows[which, kernel, bits] = merged(best)
    return rows


def class_rows(
    found: Iterable[Trial],  # what was measured
    which: int,  # the chip
    table: Table,  # the one that is in force
) -> dict[Key, Launches]:
    """The rows of each class of costs: at every size what is best for its kernels, geometrically."""
    grouped: dict[tuple[str, int, int], list[Trial]] = defaultdict(list)
    for trial in found:
        grouped[trial.cost, trial.bits, trial.kib].append(trial)
    best: dict[tuple[str, int], dict[int, Launch]] = defaultdict(dict)
    for (cost, bits, kib), several in sorted(grouped.items()):
        now = at(table.at(which, "", cost, bits), kib)
        shared = set.intersection(*(set(trial.times) for trial in several))
        times = {launch: _mean(several, launch, now) for launch in several[0].times if launch in shared}
        best[cost, bits][kib] = faster(now, times, GAIN)
    return {
        (which, cost, bits): merged(launches)
        for (cost, bits), launches in best.items()
        if launches != {kib: at(table.at(which, "", cost, bits), kib) for kib in launches}
    }


def _mean(several: list[Trial], launch: Launch, now: Launch) -> float:
    logs = [math.log(trial.times[launch].median / trial.times[now].median) for trial in several]
    return math.exp(sum(logs) / len(logs))


def merged(launches: Mapping[int, Launch]) -> Launches:
    """Rows out of what is best at some sizes: each holds up to halfway to the next size, on a log scale."""
    sizes = sorted(launches)
    rows: list[Launch] = []
    for size in sizes:
        row = replace(launches[size], kib=2 * size)
        if rows and replace(rows[-1], kib=row.kib) == row:
            rows.pop()
        rows.append(row)
    return (*rows[:-1], replace(rows[-1], kib=None))


def tuned(
    found: tuple[Trial, ...],  # what was measured
    which: int,  # the chip
    table: Table,  # the one that is in force
    base: Table,  # the table to replace; rows of the kernels that were measured are left out
    source: str,  # where the chip's rows come from
    *,
    # give rows to classes, and to kernels only where they lose much by these; else to kernels
    classes: bool,
) -> Table:
    """Return a table with what was found."""
    kernels = {trial.kernel for trial in found}
    rows = without(base, which, kernels).rows | (class_rows(found, which, table) if classes else {})
    shared = Table(base.chips | {which: source}, rows)
    own = own_rows(found, which, shared.over(without(table, which, kernels)), OWN_GAIN if classes else GAIN)
    return Table(shared.chips, rows | own)


def without(table: Table, which: int, kernels: set[str]) -> Table:
    """Return a table without the rows of some kernels on a chip."""
    return Table(
        table.chips, {k: rows for k, rows in table.rows.items() if k[0] != which or k[1] not in kernels}
    )
