"""Chains of five functions that nobody chose, certified one by one: nothing is written.

The steps of chain N are drawn with N as the seed: activations of the library, and what people write between
them. A row of the table has the largest errors in float32 on a sample of inputs, ours / eager's, and the
broken promises, in float32 or of all 65,536 float16 inputs.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fusegen import build
from fusegen.certify.certification import CertifyOptions, certify_all
from fusegen.certify.findings import Evidence
from fusegen.outputs import write_runtime

STEPS = (
    "silu", "gelu", "mish", "tanh", "sigmoid", "softplus", "elu", "selu", "celu", "gelu_tanh", "quick_gelu",
    "serf", "tanh_exp", "softsign", "logsigmoid", "tanhshrink", "hardswish", "relu", "squared_relu",
    "leaky_relu(negative_slope=0.1)", "hardtanh(min_val=-2, max_val=2)", "lecun_tanh", "snake", "star_relu",
    "minimum(x, 1.5)", "x * 1.3 + 0.1", "x - 0.5", "x / 3", "x * 2", "x / sqrt(1 + x * x)", "exp(-x * x)",
    "x * x",
)  # fmt: skip
DTYPES = ("float32", "float16")
SAMPLE = 300_000  # float32 inputs


class Unwatched:
    """Drops the progress of a run."""

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
    options = CertifyOptions(folder, (device,), DTYPES, sample)
    return chain, [verdict.evidence for verdict in certify_all((compiled,), options, Unwatched())]


def row(seed: int, chain: list[str], evidence: list[Evidence]) -> str:
    """A line of the table."""
    single, *_ = evidence
    pairs = ((output.given.ulp, output.eager.ulp) for output in single.outputs if output.eager)
    errors = " | ".join(f"{given:.3g} / {eager:.3g}" for given, eager in pairs)
    broken = "; ".join(f"{found.dtype}: {said}" for found in evidence for said in found.broken)
    return f"| {seed} | {', '.join(chain).replace('*', '·')} | {errors} | {broken} |"


def page(seeds: range, sample: int, device: str) -> Iterator[str]:
    """The lines of the table in Markdown.

    Args:
        seeds: one for each chain.
        sample: the number of float32 inputs.
        device: ``cpu`` or ``cuda``.
    """
    whole = 0
    yield "| | chain | value | gradient | broken |\n|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        write_runtime(Path(folder))
        for seed in seeds:
            chain, evidence = certified(seed, Path(folder), device, sample)
            whole += not any(found.broken for found in evidence)
            yield row(seed, chain, evidence)
    tried = f"{sample:,} float32 inputs of each tried"
    yield f"\n{whole} of {len(seeds)} keep every promise on {device}, {tried}."
