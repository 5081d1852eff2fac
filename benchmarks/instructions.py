"""Count the instructions of each kernel of the library, beside the estimate of `fusegen/schedule/cost.py`.

    python -m benchmarks.instructions            # every spec
    python -m benchmarks.instructions gelu silu

Needs nvcc and nvdisasm, no GPU. A kernel is compiled for sm_90, for dense tensors in vectors of 16 bytes;
what is counted stands before the path of ordinary elements ends, divided by the elements of a thread. Paths
that branch away from it and come back are counted too, though no ordinary element takes them: a sine's huge
arguments, what a verified vector takes if a result is undecided, about ten instructions an element, and
what the vector of a slope by polynomials takes next to a zero or where one is missing, about twenty-five.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import click

from fusegen.codegen.printed import FUNCTORS
from fusegen.core.method import Pass
from fusegen.language import library
from fusegen.project import build

ROOT = Path(__file__).resolve().parents[1]
BITS = {"float": 32, "__nv_bfloat16": 16}  # of an element, by its C++ type
DTYPES = {"float": "float32", "__nv_bfloat16": "bfloat16"}
FUNCTION = re.compile(r"^\.text\.(\S+):")
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?!NOP)")
KERNEL = re.compile(  # with one vector a thread
    r"(?:pointwise|two_phases)\w*?\d(Forward|Backward)E(?:Li\dE)?E*(f|13__nv_bfloat16)\w*?Li1E"
)


def counted(text: str) -> dict[tuple[str, str], float]:
    """Return the instructions of an element of each dense kernel, by its functor and its type."""
    dense = text.replace("kernel_of<F, T, M, 0>()", "kernel_of<F, T, M, 1>()")
    with tempfile.TemporaryDirectory() as name:
        source, binary = Path(name) / "kernel.cu", Path(name) / "kernel.cubin"
        source.write_text(dense, encoding="utf-8")
        flags = ["-std=c++17", "-O3", "--fmad=false", "-arch=sm_90", "-cubin"]
        subprocess.run(["nvcc", "-w", *flags, str(source), "-o", str(binary)], check=True)
        told = subprocess.run(["nvdisasm", str(binary)], check=True, capture_output=True, text=True).stdout
    counts: dict[str, int] = {}
    function = ""
    for line in told.splitlines():
        begins = FUNCTION.match(line)
        if begins:
            function = begins[1]
        elif function and INSTRUCTION.match(line):
            counts[function] = counts.get(function, 0) + 1
            if "EXIT" in line and "@" not in line:
                function = ""  # what follows are the tail and the paths of huge arguments
    found = {}
    for function, count in counts.items():
        of = KERNEL.search(function)
        if of:
            kind = "float" if of[2] == "f" else "__nv_bfloat16"
            found[of[1], kind] = count / (128 / BITS[kind])
    return found


@click.command()
@click.argument("specs", nargs=-1)
def main(specs: tuple[str, ...]) -> None:
    """Print the table of SPECS, or of all."""
    print("| kernel | dtype | counted | predicted | class |\n|---|---|---|---|---|")
    for path in library.find_all(specs, ROOT / "specs"):
        compiled = build.compiled_file(path)
        found = counted(build.text_of(compiled, "cuda"))
        for which in Pass:
            plans = {plan.bits: plan for plan in build.launch_plans(compiled)[which]}
            for kind, plan in ((kind, plans[bits]) for kind, bits in BITS.items() if bits in plans):
                counts = f"{found[FUNCTORS[which], kind]:.0f} | {plan.instructions}"
                print(f"| {compiled.spec.name}_{which.value} | {DTYPES[kind]} | {counts} | {plan.cost} |")


if __name__ == "__main__":
    main()
