"""Which launch is the fastest on the GPU that is here: each is built, and all are timed side by side.

A launch is a module of its own that launches so whatever the size. All must give the same bits. What is in
the table already stays unless another is faster by more than the noise, so that no size becomes slower.
"""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from fusegen import runtime_text
from fusegen.bench import clock
from fusegen.bench.clock import Spread
from fusegen.built import imported
from fusegen.elements import ELEMENTS
from fusegen.errors import NothingToTune, Span, Unequal
from fusegen.launch import MOST_THREADS, Key, Launch, Launches, Table
from fusegen.pipeline import Compilation
from fusegen.render import Binding, KernelText
from fusegen.write import apply, changes

CANDIDATES = (
    *(Launch(None, threads, vectors) for vectors in (1, 2, 4) for threads in (128, MOST_THREADS)),
    *(Launch(None, 128, 2, ahead) for ahead in (132, 264, 528)),
)
SIZES = tuple(4**k for k in range(4, 11))  # of a tensor, in KiB: 256 KiB to 1 GiB
SECONDS = 0.15  # for the turns of a kernel at a size
GAIN, OWN_GAIN = 0.02, 0.04  # of the time: what a row must gain, and a kernel's own on that of its class
MOST_NOISE = 0.1
TINY = 64  # elements
Times = dict[Launch, Spread]


@dataclass(frozen=True)
class Trial:
    """The times of a kernel's launches at one size.

    Attributes:
        kernel: its name.
        cost: the class of its costs.
        bits: of an element.
        kib: of a tensor.
        now: the launch that the table says.
        times: of each launch.
    """

    kernel: str
    cost: str
    bits: int
    kib: int
    now: Launch
    times: Times

    def best(self, now: Launch, gain: float) -> Launch:
        """The fastest launch, if it gains so much on another, and more than the noise; else the other."""
        noise = min(self.times[now].noise, MOST_NOISE)
        return faster(
            now, {launch: spread.median for launch, spread in self.times.items()}, max(gain, noise)
        )

    def gain(self, launch: Launch) -> float:
        """How much faster a launch is than the table's, as a share of its time."""
        return 1 - self.times[launch].median / self.times[self.now].median


def faster(now: Launch, times: Mapping[Launch, float], noise: float) -> Launch:
    """The launch that takes the shortest time; the present one unless it gains more than the noise."""
    best = min(times, key=lambda launch: times[launch])
    return best if times[best] < times[now] * (1 - noise) else now


def chip() -> int:
    """The compute capability of the GPU, as in sm_90.

    Raises:
        NothingToTune: there is none.
    """
    if not torch.cuda.is_available():
        raise NothingToTune(Span("tune"))
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def trials(compiled: Compilation, which: int, seconds: float = SECONDS) -> Iterator[Trial]:
    """Every kernel of a spec at every size that fits, in one dtype of each width.

    Args:
        compiled: the spec, with the table that it is launched by.
        which: the chip.
        seconds: for the turns of one kernel at one size.

    Raises:
        Unequal: a launch gives other bits.
    """
    dtypes = {ELEMENTS[dtype].bits: dtype for dtype in reversed(compiled.spec.dtypes)}
    compiled = replace(compiled, spec=replace(compiled.spec, dtypes=tuple(dtypes.values())))
    params = [param.default for param in compiled.spec.params]
    with tempfile.TemporaryDirectory() as folder:
        modules = variants(compiled, which, Path(folder))
        for (operator, text), kib in product(_kernels(compiled).items(), SIZES):
            for share in text.shares:
                tensors = _tensors(text, getattr(torch, dtypes[share.bits]), kib)
                if tensors is None:
                    continue
                runs = {
                    launch: partial(getattr(module.KERNELS, operator), *tensors, *params)
                    for launch, module in modules.items()
                }
                check(text.name, runs)
                now = at(compiled.launches.at(which, text.name, share.rows, share.bits), kib)
                times = clock.turns(runs, "cuda", seconds)
                yield Trial(text.name, share.rows, share.bits, kib, now, times)


def variants(compiled: Compilation, which: int, folder: Path) -> dict[Launch, ModuleType]:
    """A module for each candidate and each launch that the table says now, built side by side."""
    kernels = [(text.name, share) for text in _kernels(compiled).values() for share in text.shares]
    current = [
        replace(row, kib=None)
        for name, share in kernels
        for row in compiled.launches.at(which, name, share.rows, share.bits)
    ]
    texts: dict[Path, str] = {}
    for launch in dict.fromkeys((*CANDIDATES, *current)):
        table = Table({0: ""}, {(0, name, share.bits): (launch,) for name, share in kernels})
        path = folder / f"{compiled.spec.name}_{launch}.py"
        texts[path] = replace(compiled, launches=table, binding=Binding.STABLE).module
    runtime = {folder / runtime_text.FOLDER / n: text for n, text in runtime_text.files("stable").items()}
    for change in changes(texts | runtime):
        apply(change)
    modules = {
        launch: imported(path)
        for launch, path in zip(dict.fromkeys((*CANDIDATES, *current)), texts, strict=True)
    }
    with ThreadPoolExecutor(len(modules)) as pool:
        list(pool.map(partial(_built, compiled), modules.values()))
    return modules


def _built(compiled: Compilation, module: ModuleType) -> None:
    """Use both kernels of a module once."""
    params = [param.default for param in compiled.spec.params]
    dtype: torch.dtype = getattr(torch, compiled.spec.dtypes[0])
    for operator, text in _kernels(compiled).items():
        getattr(module.KERNELS, operator)(
            *(torch.zeros(TINY, dtype=dtype, device="cuda") for _ in text.inputs), *params
        )


def _kernels(compiled: Compilation) -> dict[str, KernelText]:
    """The kernels by what a module calls their operators."""
    return {"forward": compiled.texts.forward, "backward": compiled.texts.backward}


def _tensors(text: KernelText, dtype: torch.dtype, kib: int) -> list[Tensor] | None:
    """The inputs of a kernel, of a size; nothing where they and its results do not fit."""
    free, _ = torch.cuda.mem_get_info()
    if (len(text.inputs) + 3 * len(text.outputs)) * kib * 1024 > free // 2:
        return None
    generator = torch.Generator("cuda").manual_seed(0)
    count = kib * 1024 // dtype.itemsize
    return [torch.randn(count, generator=generator, device="cuda").mul_(4).to(dtype) for _ in text.inputs]


def check(name: str, runs: Mapping[Launch, clock.Run]) -> None:
    """All launches give the same bits.

    Raises:
        Unequal: one does not.
    """
    first, *others = runs
    expected = _bits(runs[first]())
    for launch in others:
        for found, right in zip(_bits(runs[launch]()), expected, strict=True):
            if not torch.equal(found, right):
                raise Unequal(Span(name), launch=str(launch), other=str(first))


def _bits(results: Any) -> tuple[Tensor, ...]:
    found = results if isinstance(results, tuple) else (results,)
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tuple(y.view(integers[y.element_size()]) for y in found)


def at(rows: Launches, kib: int) -> Launch:
    """The launch that rows say for a size, for any size."""
    row = next(row for row in rows if row.kib is None or kib <= row.kib)
    return replace(row, kib=None)


def by_kernel(found: Iterable[Trial]) -> dict[tuple[str, int], list[Trial]]:
    """Trials by kernel and bits, the smallest size first."""
    grouped: dict[tuple[str, int], list[Trial]] = defaultdict(list)
    for trial in sorted(found, key=lambda t: t.kib):
        grouped[trial.kernel, trial.bits].append(trial)
    return grouped


def own_rows(found: Iterable[Trial], which: int, table: Table, gain: float) -> dict[Key, Launches]:
    """The rows of kernels by their names, where others than the table's are better.

    Args:
        found: what was measured.
        which: the chip.
        table: what these kernels take without rows of their own.
        gain: how much better, at a size, as a share of the time.
    """
    rows: dict[Key, Launches] = {}
    for (kernel, bits), several in by_kernel(found).items():
        shared = table.at(which, kernel, several[0].cost, bits)
        now = {trial.kib: at(shared, trial.kib) for trial in several}
        best = {trial.kib: trial.best(now[trial.kib], gain) for trial in several}
        if best != now:
            rows[which, kernel, bits] = merged(best)
    return rows


def class_rows(found: Iterable[Trial], which: int, table: Table) -> dict[Key, Launches]:
    """The rows of each class of costs: at every size what is best for its kernels, on the geometric mean.

    Args:
        found: what was measured.
        which: the chip.
        table: the one that is in force.
    """
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
    """A launch's time as a share of another's."""
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
    found: tuple[Trial, ...], which: int, table: Table, base: Table, source: str, classes: bool
) -> Table:
    """A table with what was found.

    Args:
        found: what was measured.
        which: the chip.
        table: the one that is in force.
        base: the one that is written anew; rows of the kernels that were measured are left out.
        source: where the chip's rows come from.
        classes: give rows to classes, and to kernels only where they lose much by these; else to kernels.
    """
    kernels = {trial.kernel for trial in found}
    rows = without(base, which, kernels).rows | (class_rows(found, which, table) if classes else {})
    shared = Table(base.chips | {which: source}, rows)
    own = own_rows(found, which, shared.over(without(table, which, kernels)), OWN_GAIN if classes else GAIN)
    return Table(shared.chips, rows | own)


def without(table: Table, which: int, kernels: set[str]) -> Table:
    """A table without the rows of some kernels on a chip."""
    return Table(
        table.chips, {k: rows for k, rows in table.rows.items() if k[0] != which or k[1] not in kernels}
    )
