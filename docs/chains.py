"""What chains of five functions that nobody chose keep of the promises: built and certified one by one.

    python docs/chains.py [--first N] [--count N] [--sample N] [--device cpu|cuda] > docs/chains.md

The steps of chain N are drawn with N as the seed: activations of the library, and what people write between
them. Prints a table in Markdown: the largest errors in float32 that `certify` finds on a sample of inputs,
ours / eager's, and what is broken of the promises, in float32 or of all 65,536 float16 inputs.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

import click

from fusegen import build
from fusegen.certify.campaign import Order, campaign
from fusegen.certify.findings import Evidence
from fusegen.outputs import Outputs
from fusegen.write import apply

STEPS = (
    "silu", "gelu", "mish", "tanh", "sigmoid", "softplus", "elu", "selu", "celu", "gelu_tanh", "quick_gelu",
    "serf", "tanh_exp", "softsign", "logsigmoid", "tanhshrink", "hardswish", "relu", "squared_relu",
    "leaky_relu(negative_slope=0.1)", "hardtanh(min_val=-2, max_val=2)", "lecun_tanh", "snake", "star_relu",
    "minimum(x, 1.5)", "x * 1.3 + 0.1", "x - 0.5", "x / 3", "x * 2", "x / sqrt(1 + x * x)", "exp(-x * x)",
    "x * x",
)  # fmt: skip
DTYPES = ("float32", "float16")


class Unwatched:
    """Nobody is told how far a run is."""

    def begin(self, title: str, inputs: int) -> None:
        """A dtype is begun."""

    def advance(self, inputs: int) -> None:
        """Some inputs are done."""


def drawn(seed: int) -> list[str]:
    """The steps of a chain."""
    choice = random.Random(seed).choice
    return [choice(STEPS) for _ in range(5)]


def certified(seed: int, folder: Path, device: str, sample: int) -> tuple[list[str], list[Evidence]]:
    """A chain, and what is found of it by dtype."""
    chain = drawn(seed)
    spec = folder / f"chain{seed}.yaml"
    spec.write_text(f"name: chain{seed}\nsummary: A random chain.\nchain: {json.dumps(chain)}\n")
    compiled = build.compiled_file(spec)
    (folder / f"chain{seed}.py").write_text(build.module(compiled))
    order = Order(folder, (device,), DTYPES, sample)
    return chain, [verdict.evidence for verdict in campaign((compiled,), order, Unwatched())]


def row(seed: int, chain: list[str], evidence: list[Evidence]) -> str:
    """A line of the table."""
    single, *_ = evidence
    pairs = ((output.given.ulp, output.eager.ulp) for output in single.outputs if output.eager)
    errors = " | ".join(f"{given:.3g} / {eager:.3g}" for given, eager in pairs)
    broken = "; ".join(f"{found.dtype}: {said}" for found in evidence for said in found.broken)
    return f"| {seed} | {', '.join(chain).replace('*', '·')} | {errors} | {broken} |"


@click.command()
@click.option("--first", default=0, help="The first seed.")
@click.option("--count", default=40, help="How many chains.")
@click.option("--sample", default=300_000, help="How many float32 inputs.")
@click.option("--device", default="cpu", type=click.Choice(["cpu", "cuda"]))
def main(first: int, count: int, sample: int, device: str) -> None:
    """Print the table."""
    whole = 0
    print("| | chain | value | gradient | broken |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for change in Outputs(Path(folder), "stable", {}, Path(folder)).runtime():
            apply(change)
        for seed in range(first, first + count):
            chain, evidence = certified(seed, Path(folder), device, sample)
            whole += not any(found.broken for found in evidence)
            print(row(seed, chain, evidence), flush=True)
    print(f"\n{whole} of {count} keep every promise on {device}, {sample:,} float32 inputs of each tried.")


if __name__ == "__main__":
    main()
