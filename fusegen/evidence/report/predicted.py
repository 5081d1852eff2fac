"""The speed that `cost.py` predicts for each kernel, beside measurements of `fusegen bench --json`.

Both are fractions of copy bandwidth. A kernel is predicted to be as fast as a copy of the same bytes
unless its instructions take longer, stalls of the special-function units included, or unless a bitmask
saves bytes. A training step is two kernels; it has no row.
"""

from collections.abc import Iterator
from pathlib import Path

from fusegen.core.dtypes import ELEMENTS
from fusegen.core.method import Pass, Variant
from fusegen.core.targets import Device
from fusegen.errors import NoMeasurements, Span, counted
from fusegen.evidence.bench.case import TRAINING, Case
from fusegen.evidence.bench.competitors import COPY, EAGER, OURS
from fusegen.evidence.bench.measurements import Report
from fusegen.language import library
from fusegen.project import build
from fusegen.schedule.cost import BUDGETS, sfu_stall
from fusegen.schedule.forms import BITMASK

HEAD = """\
# Predicted and measured speeds

Fractions of copy bandwidth at {elements} elements: `schedule/cost.py` predicts them for three chips from
the instructions of an element (`python -m benchmarks.instructions`); the last two were measured on an
{device}, {torch}, {date}. The costs of registers, the L1 cache and shared memory are not predicted.
An empty cell under eager: its error was larger than `fusegen bench` accepts.

| kernel | dtype | class | instructions | A100 | H200 | B200 | measured | eager |
|---|---|---|---|---|---|---|---|---|"""
NOT_COMPUTED = ("table", "cubic", "cubic_slope")


def page(reports: tuple[Report, ...], specs: Path) -> Iterator[str]:
    """Yield the page of what one report or more hold, as lines of Markdown.

    Raises:
        NoMeasurements: all are of training steps.
    """
    cases = [(report, case) for report in reports for case in report.cases()]
    kernels = [(report, case) for report, case in cases if case.what != TRAINING]
    if not kernels:
        raise NoMeasurements(Span("report predicted"), why="the files have no forward or backward pass")
    counts = sorted({case.numel for _, case in kernels})
    ends = dict.fromkeys((counts[0], counts[-1]))
    yield HEAD.format(elements=" to ".join(map(_power, ends)), **reports[0].machine)
    for report, case in kernels:
        cost, instructions, fractions = _predicted(case, specs)
        rows = [report.of(who, case) for who in (OURS, EAGER)]
        measured = [report.share(row, COPY) if row else None for row in rows]
        cells = " | ".join(f"{each:.2f}" if each else "" for each in (*fractions, *measured))
        yield f"| {_label(case, counts)} | {case.dtype} | {cost} | {instructions} | {cells} |"
    left_out = len(cases) - len(kernels)
    if left_out:
        yield f"\nNot predicted: {counted(left_out, 'training step')}, of two kernels each."


def _power(count: int) -> str:
    """Return a number of elements: ``2^28``, or ``1,000`` of one that is no power of two."""
    return f"2^{count.bit_length() - 1}" if count.bit_count() == 1 else f"{count:,}"


def _label(case: Case, counts: list[int]) -> str:
    """Return the name of a kernel, with its elements where the page has several numbers of them."""
    kernel = f"{case.name}_{case.what}"
    return kernel if len(counts) == 1 else f"{kernel}, {_power(case.numel)} elements"


def _predicted(case: Case, specs: Path) -> tuple[str, int, list[float]]:
    """The class and the instructions of a kernel, and its fraction of copy bandwidth on each chip."""
    compiled = build.compiled_file(library.find_all((case.name,), specs)[0])
    which, bits = Pass(case.what), ELEMENTS[case.dtype].bits
    [plan] = (plan for plan in build.launch_plans(compiled)[which] if plan.bits == bits)
    kernel = compiled.kernels[which, Device.CUDA, Variant(ELEMENTS[case.dtype].compute)]
    whole = plan.instructions
    if plan.cost not in NOT_COMPUTED and bits == 16:
        whole += sfu_stall(kernel)
    moved = needed = bits / 8 * (len(kernel.inputs) + len(kernel.results))
    if case.what == "backward" and BITMASK in compiled.forms:
        needed = bits / 8 * (2 + 1 / 16)  # a byte for each vector in place of the elements
    times = [max(needed, whole / budget) for budget in BUDGETS.values()]
    return plan.cost, plan.instructions, [moved / time for time in times]
