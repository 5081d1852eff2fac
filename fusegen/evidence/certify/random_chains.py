"""Chains of five random functions, certified one by one; nothing is written.

The seed of chain N is N. Its steps are drawn from activations of the library and from common expressions.
A row of the table has the largest errors, ours / eager's, in the first dtype, and the broken promises in
each dtype: float32 on a sample of inputs, 16-bit types on all 65,536.
"""

import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fusegen.evidence.certify.certification import CertifyOptions, Unwatched, certify_all
from fusegen.evidence.certify.findings import Evidence
from fusegen.project import build, runtime_folder

STEPS = (
    "silu", "gelu", "mish", "tanh", "sigmoid", "softplus", "elu", "selu", "celu", "gelu_tanh", "quick_gelu",
    "serf", "tanh_exp", "softsign", "logsigmoid", "tanhshrink", "hardswish", "relu", "squared_relu",
    "leaky_relu(negative_slope=0.1)", "hardtanh(min_val=-2, max_val=2)", "lecun_tanh", "snake", "star_relu",
    "minimum(x, 1.5)", "x * 1.3 + 0.1", "x - 0.5", "x / 3", "x * 2", "x / sqrt(1 + x * x)", "exp(-x * x)",
    "x * x",
)  # fmt: skip
DTYPES = ("float32", "float16")
SAMPLE = 300_000  # float32 inputs
HEAD = "| | chain | value | gradient | broken |\n|---|---|---|---|---|"


@dataclass(frozen=True)
class CertifiedChain:
    """A chain with the evidence of each dtype."""

    seed: int  # of the chain
    steps: tuple[str, ...]  # as a spec's chain has them
    evidence: tuple[Evidence, ...]  # one for each dtype

    @property
    def broken(self) -> tuple[str, ...]:
        """The broken promises, each after its dtype."""
        return tuple(f"{found.dtype}: {said}" for found in self.evidence for said in found.broken)


def drawn(seed: int) -> list[str]:
    """Return the steps of a chain."""
    choice = random.Random(seed).choice
    return [choice(STEPS) for _ in range(5)]


def certified(
    seeds: range,  # one for each chain
    # one device, the dtypes (none means `DTYPES`) and the number of float32 inputs (None means `SAMPLE`);
    # the modules go to a temporary folder
    options: CertifyOptions,
) -> Iterator[CertifiedChain]:
    """Yield chains and their evidence, each as soon as it is known.

    Raises:
        NoDevice, SpecErrors: as of `certification.certify_all`.
    """
    with tempfile.TemporaryDirectory() as folder:
        runtime_folder.write(Path(folder))
        sample, dtypes = options.sample or SAMPLE, options.dtypes or DTYPES
        here = replace(options, output=Path(folder), sample=sample, dtypes=dtypes)
        for seed in seeds:
            steps = drawn(seed)
            spec = here.output / f"chain{seed}.yaml"
            spec.write_text(f"name: chain{seed}\nsummary: A random chain.\nchain: {json.dumps(steps)}\n")
            compiled = build.compiled_file(spec)
            (here.output / f"chain{seed}.py").write_text(build.module(compiled))
            verdicts = certify_all((compiled,), here, Unwatched())
            yield CertifiedChain(seed, tuple(steps), tuple(verdict.evidence for verdict in verdicts))


def row(one: CertifiedChain) -> str:
    """Return a line of the table."""
    first, *_ = one.evidence
    pairs = ((output.given.ulp, output.eager.ulp) for output in first.outputs if output.eager)
    errors = " | ".join(f"{given:.3g} / {eager:.3g}" for given, eager in pairs)
    steps = ", ".join(one.steps).replace("*", "·")
    return f"| {one.seed} | {steps} | {errors} | {'; '.join(one.broken)} |"


def page(
    seeds: range,  # one for each chain
    options: CertifyOptions,  # as of `certified`, with any number of devices
) -> Iterator[tuple[str, bool]]:
    """The lines of the tables in Markdown, one a device, each with whether it shows a broken promise."""
    for device in options.devices:
        yield HEAD, False
        kept = 0
        for one in certified(seeds, replace(options, devices=(device,))):
            kept += not one.broken
            yield row(one), bool(one.broken)
        tried = f"{options.sample or SAMPLE:,} float32 inputs of each tried"
        yield f"\n{kept} of {len(seeds)} keep every promise on {device}, {tried}.\n", False
