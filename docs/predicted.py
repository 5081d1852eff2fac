"""What `fusegen/cost.py` predicts of each kernel's speed, beside what was measured.

    python -m fusegen bench NAME... --backward --dtype float32 --dtype bfloat16 --json FILE
    python docs/predicted.py FILE... > docs/cost.md

Both are shares of the speed of a copy of the same bytes. A kernel is predicted to be as fast as one unless
its instructions take longer, what the chip's own functions wait included.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from fusegen import library, pipeline
from fusegen.cost import BUDGETS, CUBIC, TABLE, waits
from fusegen.elements import ELEMENTS
from fusegen.ir import Device

ROOT = Path(__file__).resolve().parents[1]
HEAD = """\
# Predicted and measured speeds

Shares of a copy's speed, of 2^28 elements: what `fusegen/cost.py` predicts for three chips from the
instructions of an element (`docs/slots.py`), and what was measured on an {device}, {torch}, {date}.

| kernel | dtype | class | instructions | A100 | H200 | B200 | measured | eager |
|---|---|---|---|---|---|---|---|---|"""


def predicted(name: str, what: str, dtype: str) -> tuple[str, int, list[float]]:
    """The class and the instructions of a kernel, and its share of a copy's speed on each chip."""
    compiled = pipeline.compilation(library.find_all((name,), ROOT / "specs")[0])
    text = getattr(compiled.texts, what)
    bits = ELEMENTS[dtype].bits
    [share] = (share for share in text.shares if share.bits == bits)
    [kernel] = (
        kernel
        for kernel in compiled.kernels(Device.CUDA)
        if (kernel.name, kernel.math) == (text.name, ELEMENTS[dtype].compute)
    )
    whole = share.slots
    if share.cost not in (TABLE, *CUBIC.values()) and bits == 16:
        whole += waits(kernel)
    moved = bits / 8 * (len(text.inputs) + len(text.outputs))
    return share.cost, share.slots, [min(1.0, budget * moved / whole) for budget in BUDGETS.values()]


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
def main(files: tuple[Path, ...]) -> None:
    """Print the table of what FILES hold."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    print(HEAD.format(**found[0]["machine"]))
    times: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in (row for run in found for row in run["rows"] if row["time"]):
        case = row["case"]
        by = times.setdefault((case["name"], case["what"], case["dtype"]), {})
        by[row["who"]] = row["time"]["median"]
    for (name, what, dtype), by in times.items():
        cost, slots, shares = predicted(name, what, dtype)
        cells = [f"{share:.2f}" for share in shares]
        cells += [f"{by['copy'] / by[who]:.2f}" if who in by else "" for who in ("fusegen", "eager")]
        print(f"| {name}_{what} | {dtype} | {cost} | {slots} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
