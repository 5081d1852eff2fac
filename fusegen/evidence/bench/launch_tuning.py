"""The fastest launch configurations on this GPU: each is built, and all are timed in turns.

Each configuration has a module of its own, which uses it at every size. All give the same bits. A row of
the table stays unless another is faster by more than the noise, so that no size becomes slower.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from fusegen.codegen import module_text
from fusegen.codegen.printed import Binding, LaunchPlan
from fusegen.codegen.render import whole
from fusegen.compiler import pipeline
from fusegen.compiler.pipeline import Compiled
from fusegen.core.dtypes import ELEMENTS
from fusegen.core.launch import BROADCAST, MOST_THREADS, Key, Launch, Launches, Table, special_rows
from fusegen.core.method import Pass
from fusegen.core.term import Program
from fusegen.core.write import apply, changes
from fusegen.errors import NothingToTune, Span, Unequal
from fusegen.evidence.bench import clock
from fusegen.evidence.bench.launch_rows import Trial, at
from fusegen.project import build, runtime_folder
from fusegen.project.loader import imported

CANDIDATES = (
    *(Launch(None, threads, vectors) for vectors in (1, 2, 4) for threads in (128, MOST_THREADS)),
    *(Launch(None, 128, 2, ahead) for ahead in (132, 264, 528)),
)
SIZES = tuple(4**k for k in range(4, 11))  # of a tensor, in KiB: 256 KiB to 1 GiB
SECONDS = 0.15  # for the turns of a kernel at a size
CHANNELS, PIXELS = 16, 1024  # of an image, of which a tensor of several has as many as fit its size
TINY = 64  # elements


def chip() -> int:
    """Return the compute capability of the GPU, as in sm_90.

    Raises:
        NothingToTune: there is none.
    """
    if not torch.cuda.is_available():
        raise NothingToTune(Span("tune"))
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def trials(compiled: Compiled, which: int, seconds: float = SECONDS) -> Iterator[Trial]:
    """Yield every kernel of a spec at every size that fits, in one dtype of each width.

    Raises:
        Unequal: a launch gives other bits.
    """
    dtypes = {ELEMENTS[dtype].bits: dtype for dtype in reversed(compiled.spec.dtypes)}
    compiled = pipeline.compiled(replace(compiled.spec, dtypes=tuple(dtypes.values())), compiled.library)
    params = [param.default for param in compiled.spec.scalars]
    with tempfile.TemporaryDirectory() as folder:
        modules = variants(compiled, which, Path(folder))
        plans = build.launch_plans(compiled)
        for of in Pass:
            calls = {launch: getattr(module.KERNELS, of.value) for launch, module in modules.items()}
            for plan, kib in product(plans[of], SIZES):
                dtype: torch.dtype = getattr(torch, dtypes[plan.bits])
                for one in _cases(compiled, of, plan, which):
                    tensors = one.tensors(compiled.programs[of], dtype, kib)
                    if tensors is None:
                        continue
                    runs = {
                        launch: partial(call, *tensors, *params)
                        for launch, call in calls.items()
                        if one.takes(launch)
                    }
                    check(one.name, runs)
                    times = clock.turns(runs, "cuda", seconds)
                    yield Trial(one.name, one.rows, plan.bits, kib, at(one.now, kib), times)


@dataclass(frozen=True)
class Case:
    """Tensors of one kind that a kernel is timed on."""

    # name, rows: the kernel and the class in the launch table
    name: str
    rows: str
    now: Launches  # the rows that the table says
    tensors: Callable[[Program, torch.dtype, int], list[Tensor] | None]  # makes them, of a size
    broadcast: bool = False  # whether they have several shapes; such kernels do not prefetch

    def takes(self, launch: Launch) -> bool:
        """Return True if the kernel can run with a launch configuration."""
        return not (self.broadcast and launch.ahead)


def _cases(compiled: Compiled, of: Pass, plan: LaunchPlan, which: int) -> Iterator[Case]:
    """Dense tensors, and for a forward kernel of several also an image and operands of its channels."""
    name, table = f"{compiled.spec.name}_{of.value}", build.launches(compiled)
    yield Case(name, plan.rows, table.at(which, name, plan.rows, plan.bits), _tensors)
    if of is Pass.FORWARD and len(compiled.spec.tensors) > 1:
        rows = special_rows(table, name, BROADCAST, plan.bits)
        now = rows[max((chip for chip in rows if chip <= which), default=min(rows))]
        yield Case(f"{name}_{BROADCAST}", BROADCAST, now, _operands, broadcast=True)


def variants(compiled: Compiled, which: int, folder: Path) -> dict[Launch, ModuleType]:
    """Return a module for each candidate and each launch that the table says now, built side by side."""
    plans = [(of, plan) for of in Pass for plan in build.launch_plans(compiled)[of]]
    kernels = [(f"{compiled.spec.name}_{of.value}", plan) for of, plan in plans]
    current = [
        replace(row, kib=None)
        for of, plan in plans
        for case in _cases(compiled, of, plan, which)
        for row in case.now
    ]
    texts: dict[Path, str] = {}
    for launch in dict.fromkeys((*CANDIDATES, *current)):
        rows: dict[Key, Launches] = {(0, name, plan.bits): (launch,) for name, plan in kernels}
        alone = replace(launch, ahead=0)
        rows |= {(0, f"{name}_{BROADCAST}", plan.bits): (alone,) for name, plan in kernels}
        table = Table({0: ""}, rows)
        path = compiled.module(folder).with_stem(f"{compiled.spec.name}_{launch}")
        texts[path] = whole.module(module_text.rendered(compiled, Binding.STABLE, table)[0])
    runtime_folder.write(folder)
    for change in changes(texts):
        apply(change)
    modules = {
        launch: imported(path)
        for launch, path in zip(dict.fromkeys((*CANDIDATES, *current)), texts, strict=True)
    }
    with ThreadPoolExecutor(len(modules)) as pool:
        list(pool.map(partial(_built, compiled), modules.values()))
    return modules


def _built(compiled: Compiled, module: ModuleType) -> None:
    params = [param.default for param in compiled.spec.scalars]
    dtype: torch.dtype = getattr(torch, compiled.spec.dtypes[0])
    for of in Pass:
        tensors = (torch.zeros(TINY, dtype=dtype, device="cuda") for _ in compiled.programs[of].inputs)
        getattr(module.KERNELS, of.value)(*tensors, *params)


def _tensors(program: Program, dtype: torch.dtype, kib: int) -> list[Tensor] | None:
    """Return the inputs of a kernel, of a size; nothing where they and its results do not fit."""
    free, _ = torch.cuda.mem_get_info()
    if (len(program.inputs) + 3 * len(program.results)) * kib * 1024 > free // 2:
        return None
    generator = torch.Generator("cuda").manual_seed(0)
    count = kib * 1024 // dtype.itemsize
    return [
        torch.randn(count, generator=generator, device="cuda").mul_(4).to(dtype) for _ in program.inputs
    ]


def _operands(program: Program, dtype: torch.dtype, kib: int) -> list[Tensor] | None:
    """Return images of a size, and for each other input a value for each of their channels."""
    dense = _tensors(program, dtype, kib)
    if dense is None:
        return None
    return [
        t.view(-1, CHANNELS, PIXELS) if k == 0 else t[:CHANNELS].view(-1, 1) for k, t in enumerate(dense)
    ]


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
