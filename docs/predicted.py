"""What `fusegen/cost.py` predicts of each kernel's speed, beside what was measured.

    make measure            # on a GPU: writes the file, and this table into docs/cost.md
    python docs/predicted.py docs/library.json

Both are shares of the speed of a copy of what a formula reads and writes. A kernel is predicted to be as
fast as one unless its instructions take longer, what the chip's own functions wait included, or unless a
mask saves bytes.
"""

from __future__ import annotations

from pathlib import Path

import click

from fusegen import build, library
from fusegen.bench.contest import COPY, EAGER, OURS
from fusegen.bench.results import from_json
from fusegen.cost import BUDGETS, waits
from fusegen.elements import ELEMENTS
from fusegen.ir import Device
from fusegen.method import Pass, Variant

ROOT = Path(__file__).resolve().parents[1]
HEAD = """\
# Predicted and measured speeds

Shares of a copy's speed, of 2^28 elements: what `fusegen/cost.py` predicts for three chips from the
instructions of an element (`docs/slots.py`), and what was measured on an {device},
{torch}, {date}. What registers, a processor's cache and its shared memory cost is not
predicted. Where nothing stands under eager, its error was larger than `fusegen bench` lets pass.

| kernel | dtype | class | instructions | A100 | H200 | B200 | measured | eager |
|---|---|---|---|---|---|---|---|---|"""
NOT_COMPUTED = ("table", "cubic", "cubic_slope")


def predicted(name: str, what: str, dtype: str) -> tuple[str, int, list[float]]:
    """The class and the instructions of a kernel, and its share of a copy's speed on each chip."""
    compiled = build.compiled_file(library.find_all((name,), ROOT / "specs")[0])
    text = getattr(build.texts(compiled), what)
    bits = ELEMENTS[dtype].bits
    [share] = (share for share in text.shares if share.bits == bits)
    kernel = compiled.kernels[Pass(what), Device.CUDA, Variant(ELEMENTS[dtype].compute)]
    whole = share.slots
    if share.cost not in NOT_COMPUTED and bits == 16:
        whole += waits(kernel)
    moved = needed = bits / 8 * (len(text.inputs) + len(text.outputs))
    if what == "backward" and compiled.plan.bitmask:
        needed = bits / 8 * (2 + 1 / 16)  # a byte for each vector in place of the elements
    times = [max(needed, whole / budget) for budget in BUDGETS.values()]
    return share.cost, share.slots, [moved / time for time in times]


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
def main(files: tuple[Path, ...]) -> None:
    """Print the table of what FILES hold."""
    reports = [from_json(path) for path in files]
    print(HEAD.format(**reports[0].machine))
    for report in reports:
        for case in dict.fromkeys(row.case for row in report.rows):
            cost, slots, shares = predicted(case.name, case.what, case.dtype)
            rows = [report.of(who, case) for who in (OURS, EAGER)]
            measured = [report.share(row, COPY) if row else None for row in rows]
            cells = " | ".join(f"{share:.2f}" if share else "" for share in (*shares, *measured))
            print(f"| {case.name}_{case.what} | {case.dtype} | {cost} | {slots} | {cells} |")


if __name__ == "__main__":
    main()
