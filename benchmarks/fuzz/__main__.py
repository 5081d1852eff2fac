"""Draw specs, call their modules in random ways, and run random models, until the time is over.

    python -m benchmarks.fuzz --seconds 3600 --seed 1
    python -m benchmarks.fuzz --seed 1 --only 17        # repeats case 17 of seed 1

Every failure is a line of JSON with the seed and the case that repeat it; the exit status is 1 if there is
one. A spec that the compiler refuses is counted, and so is one that `build` warns of, whose errors are not
judged. Kernels run on the CPU.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import click
import torch

from benchmarks.fuzz import calls, exact, models, specs
from fusegen.codegen.render.forward_arguments import function_name
from fusegen.compiler.pipeline import Compiled
from fusegen.errors import FusegenError, SpecErrors
from fusegen.project import build, runtime_folder
from fusegen.project.loader import imported
from fusegen.project.spec_warnings import contract_warnings

MODELS = 0.2  # of the cases
LAST = 1500  # characters of a traceback
PATIENCE = 120.0  # seconds of the processor's time, which stop a hang


class Hang(Exception):
    """A case took so long that it would not end."""


def case(seed: str, folder: Path, counts: Counter[str]) -> Iterator[dict[str, Any]]:
    """Return the failures of a case; nothing is kept of it."""
    chance = random.Random(seed)
    if chance.random() < MODELS:
        counts["models"] += 1
        for said in models.failures(seed, folder / "models"):
            yield {"model": said}
        return
    name = "fuzz_" + seed.replace(":", "_")
    text = specs.spec(chance, name)
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        compiled = build.compiled_file(path)
    except (FusegenError, SpecErrors):
        counts["refused"] += 1
        return
    counts["specs"] += 1
    try:
        for said in _of_spec(compiled, chance, folder, counts):
            yield {"spec": text, "failure": said}
    except Exception:  # of whatever it meets: the other cases are tried nonetheless
        yield {"spec": text, "error": traceback.format_exc()[-LAST:]}


def _of_spec(
    compiled: Compiled, chance: random.Random, folder: Path, counts: Counter[str]
) -> Iterator[str]:
    """Return the failures of calls of a spec's module."""
    spec = compiled.spec
    path = folder / "generated" / f"{spec.name}.py"
    path.write_text(build.module(compiled), encoding="utf-8")
    module: Any = imported(path)
    kinds = [each.is_mask for each in spec.tensors]
    params = {p.name: p.default for p in spec.scalars}
    called = calls.Called(module, getattr(module, function_name(spec)), params, kinds)
    warned = any(contract_warnings(compiled))
    counts["warned"] += warned
    dtype = getattr(torch, chance.choice(spec.dtypes))
    if not warned and not any(kinds):
        given = exact.points(chance, dtype, len(kinds))
        yield from (f"{dtype} {said}" for said in exact.wrong(compiled, called, given))
    yield from calls.failures(called, chance, dtype)
    counts["calls"] += calls.CALLS


def tried(seed: str, folder: Path, counts: Counter[str]) -> Iterator[dict[str, Any]]:
    """Return the failures of a case; an error or a hang is one."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        yield from case(seed, folder, counts)
    except Exception:
        yield {"error": traceback.format_exc()[-LAST:]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run(seed: int, numbers: Iterator[int], folder: Path) -> Iterator[dict[str, Any]]:
    """Return the failures of some cases of a seed, and at last the counts."""
    counts: Counter[str] = Counter()
    runtime_folder.write(folder / "generated")
    for number in numbers:
        for found in tried(f"{seed}:{number}", folder, counts):
            counts["failures"] += 1
            yield {"seed": seed, "case": number, **found}
        counts["cases"] += 1
    yield dict(counts)


def until(seconds: float) -> Iterator[int]:
    """Return numbers from 0 on until the time is over."""
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        yield number
        number += 1


@click.command(help=__doc__)
@click.option("--seconds", default=600.0, help="Begin no case after so many seconds.")
@click.option("--seed", default=1, help="The seed of the cases.")
@click.option("--only", default=None, type=int, help="Try this case only.")
def main(seconds: float, seed: int, only: int | None) -> None:
    """Try cases, and print the failures."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCH_EXTENSIONS_DIR"] = f"{folder}/libraries"
        numbers = until(seconds) if only is None else iter((only,))
        for found in run(seed, numbers, Path(folder)):
            click.echo(json.dumps(found))
    sys.exit(1 if found.get("failures") else 0)


if __name__ == "__main__":
    main()
