"""Cases one after the other: competitors are checked, then timed side by side."""

import datetime
import gc
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Protocol

import torch

from fusegen.core.poolings import is_reduced
from fusegen.core.timing import timed
from fusegen.errors import DoesNotFit, FusegenError, NoDevice, NothingToMeasure, Span
from fusegen.evidence.bench import clock
from fusegen.evidence.bench.case import FORWARD, Case, written
from fusegen.evidence.bench.clock import Run
from fusegen.evidence.bench.competitors import Competitors, Function
from fusegen.evidence.bench.measurements import Row
from fusegen.project.build import AnyCompiled
from fusegen.project.loader import built

DEFAULT = {"cuda": 2**28, "cpu": 2**24}  # elements
SMALL = 2**20  # elements up to which calls are timed too
PLACES = 5  # in memory, for each case
SECONDS = 2.0  # for the turns of a case


@dataclass(frozen=True)
class BenchOptions:
    """The options of a benchmark."""

    output: Path  # the folder of the modules
    device: str  # ``cpu`` or ``cuda``
    dtypes: tuple[str, ...] = ()  # those to measure; none means float32, or what a spec has instead
    # of the first input; none means the spec's own where it has layers, views or rows, else `DEFAULT`
    shapes: tuple[tuple[int, ...], ...] = ()
    passes: tuple[str, ...] = (FORWARD,)  # ``forward``, ``backward`` or both
    compiled: bool = True  # whether torch.compile competes
    against: tuple[str, ...] = ()  # other modules, each as ``FILE:CLASS``
    seconds: float = SECONDS  # for the turns of a case


class BenchProgress(Protocol):
    """Receives the progress of a benchmark, case by case."""

    def begin(self, title: str, cases: int) -> None:
        """The start of a case, and the number of all cases."""


def measured(
    compilations: tuple[AnyCompiled, ...], options: BenchOptions, progress: BenchProgress
) -> Iterator[tuple[Row, ...]]:
    """Yield the rows of each case, as it is done.

    Raises:
        NoDevice: CUDA is asked for, and there is none.
        NothingToMeasure: no spec is made for a dtype that is asked for.
        NotBuilt: a module is not what its spec says.
        DoesNotFit: a shape is too large for the memory there is.
        NoSuchCompetitor: there is no such file or class.
    """
    if options.device == "cuda" and not torch.cuda.is_available():
        raise NoDevice(Span("--device cuda"))
    planned = [(compiled, case) for compiled in compilations for case in cases(compiled, options)]
    if not planned:
        names = ", ".join(compiled.spec.name for compiled in compilations)
        raise NothingToMeasure(Span("--dtype"), names=names, dtypes=", ".join(options.dtypes))
    for compiled, case in planned:
        progress.begin(str(case), len(planned))
        yield timed(f"bench {case}", rows, compiled, case, options)


def cases(compiled: AnyCompiled, options: BenchOptions) -> Iterator[Case]:
    """Yield the cases of one spec."""
    spec = compiled.spec
    viewed = any(each.is_viewed for each in spec.inputs)
    bound = spec.layers or viewed or is_reduced(spec)  # to the rank that is declared
    own = spec.inputs[0].shape if bound else (DEFAULT[options.device],)
    default = "float32" if "float32" in spec.dtypes else spec.dtypes[0]
    dtypes = [dtype for dtype in options.dtypes or (default,) if dtype in spec.dtypes]
    for what, dtype, shape in product(options.passes, dtypes, options.shapes or (own,)):
        yield Case(spec.name, what, dtype, shape, options.device)


def sizes(device: str) -> tuple[tuple[int, ...], ...]:
    """Return sizes from 1 Ki elements, each four times the one before, to 1 Gi or what fits in float32."""
    counts = [4**k for k in range(5, 16)]
    fits = [n for n in counts if _needed(Case("", "backward", "float32", (n,), device), 1) < _free(device)]
    return tuple((count,) for count in fits)


def rows(compiled: AnyCompiled, case: Case, options: BenchOptions) -> tuple[Row, ...]:
    """Return the competitors of one case: the copy, then those that are timed, then those that are not."""
    check_fit(case, len(compiled.spec.inputs))
    try:
        with torch.set_grad_enabled(case.what != FORWARD):
            competitors = Competitors(
                compiled.spec, built(compiled, options.output), case, compiled.outputs
            )
            return _rows(competitors, options)
    except torch.OutOfMemoryError:
        raise does_not_fit(case, len(compiled.spec.inputs)) from None
    finally:
        gc.collect()  # before the next case needs the memory


def _rows(competitors: Competitors, options: BenchOptions) -> tuple[Row, ...]:
    case, functions = competitors.case, competitors.functions(options.against, compiled=options.compiled)
    said = {name: _wrong(competitors, function) for name, function in functions.items()}
    failed = {name: why for name, why in said.items() if why}
    right = {name: function for name, function in functions.items() if name not in failed}
    times = clock.at_memory_offsets(PLACES, partial(competitors.runs, right), case.device, options.seconds)
    runs = competitors.runs(right, 0)
    small = case.numel <= SMALL
    calls = clock.calls(runs, case.device) if small else {}
    # a backward pass runs on the stream of its forward pass, which no graph records
    graphs = small and case.device == "cuda" and case.what == FORWARD
    found = [
        Row(
            case,
            name,
            competitors.moved,
            times[name],
            calls.get(name),
            _in_graph(run) if graphs else None,
            clock.peak(competitors.whole(functions[name]) if name in functions else run, case.device),
        )
        for name, run in runs.items()
    ]
    return (*found, *(Row(case, name, competitors.moved, said=why) for name, why in failed.items()))


def _wrong(competitors: Competitors, function: Function) -> str:
    """Return the reason not to time a competitor; empty if it is right."""
    try:
        return competitors.wrong(competitors.run(function))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        lines = str(error).splitlines() or [""]
        return f"it fails: {type(error).__name__}: {lines[0]}"


def _in_graph(run: Run) -> float | None:
    """Return microseconds of a run in a CUDA graph; None where it cannot be recorded."""
    try:
        return clock.in_graph(run)
    except RuntimeError:
        return None


def check_fit(case: Case, inputs: int) -> None:
    """Refuse a shape that cannot fit.

    Raises:
        DoesNotFit: it needs more than is free.
    """
    if _needed(case, inputs) > _free(case.device):
        raise does_not_fit(case, inputs)


def does_not_fit(case: Case, inputs: int) -> FusegenError:
    """Return the error of a case that is too large."""
    needed, free = _needed(case, inputs), _free(case.device)
    return DoesNotFit(
        Span(f"--shape {written(case.shape)}"),
        case=str(case),
        needed=f"{needed / 2**30:.1f}",
        free=f"{free / 2**30:.1f}",
        fits=f"{int(case.numel * free / needed):,}",
    )


def _needed(case: Case, inputs: int) -> int:
    """Return bytes of the tensors that are there at once, at least: inputs, results and the copy's two."""
    tensors = inputs + 3 if case.what == FORWARD else 4 * inputs + 6
    dtype: torch.dtype = getattr(torch, case.dtype)
    return case.numel * dtype.itemsize * tensors


def _free(device: str) -> int:
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def machine(device: str) -> dict[str, str]:
    """Return the device, the version of PyTorch and the date of a report."""
    threads = f"{torch.get_num_threads()} threads"
    name = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {threads}"
    return {"device": name, "torch": f"PyTorch {torch.__version__}", "date": f"{datetime.date.today()}"}
