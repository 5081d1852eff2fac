"""Certify formulas of users, spelt as their authors spell them, before and after a change of the compiler.

    python -m benchmarks.user_formulas --device cuda                                   # column "after"
    python -m benchmarks.user_formulas --device cuda --column before --modules OLD_DIR # ready-made modules
    python -m benchmarks.user_formulas --table-only

Without --modules the installed compiler builds the modules. Modules and kernels are built in parallel, and
every result is appended to docs/reports/user_formulas.jsonl as soon as it is known: a run that was cut off
goes on where it stopped. The same evaluator and the formula of the spec serve modules of any compiler.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from benchmarks.user_formulas_table import COLUMNS, FORMULAS, KEY, Record, compact, read, table
from fusegen.codegen.printed import Binding
from fusegen.compiler.stages import real, stable_program
from fusegen.evidence import certify
from fusegen.evidence.certify.certification import prepared
from fusegen.evidence.certify.evaluator import Evaluator
from fusegen.evidence.certify.findings import Evidence, Subject
from fusegen.evidence.certify.sweep import EVERY
from fusegen.language.library import Library, load
from fusegen.project import build
from fusegen.project.loader import imported

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "docs" / "reports" / "user_formulas.jsonl"


@dataclass(frozen=True)
class Run:
    """The request of a run."""

    column: str  # ``before`` or ``after``
    modules: Path  # the folder of the modules
    # devices, dtypes: where to certify
    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    sample: int  # how many float32 inputs
    results: Path  # the file of results
    deadline: float  # the time after which no formula is begun


# Building


def build_one(spec: Path, output: Path) -> str:
    """Write the module of a spec; returns what is wrong with it, or nothing."""
    try:
        for path, found in build.built({spec: Binding.STABLE}, output).items():
            path.write_text(found.text, encoding="utf-8")
    except Exception as error:
        return f"{spec.stem}: {str(error).splitlines()[0]}"
    return ""


def build_all(specs: list[Path], output: Path, jobs: int) -> None:
    """Write the modules of some specs, several at a time."""
    with ProcessPoolExecutor(jobs) as pool:
        for wrong in pool.map(build_one, specs, [output] * len(specs)):
            if wrong:
                click.echo(wrong)


def subject_of(spec: Path, modules: Path) -> Subject:
    """Return the function in a ready-made module, beside the formula of its spec."""
    parsed, library = load(spec), Library(spec.parent)
    module: Any = imported(modules / f"{spec.stem}.py")
    params = {p.name: Fraction(float(p.default)) for p in parsed.params}
    numbers = [float(value) for value in params.values()]
    own, eager = getattr(module, spec.stem), module.eager
    return Subject(
        name=spec.stem,
        program=real(parsed, library),
        stable=stable_program(parsed, library),
        params=params,
        given=lambda *tensors: own(*tensors, *numbers),
        eager=lambda *tensors: eager(*tensors, *numbers),
    )


def evaluator_of(spec: Path, modules: Path, device: str) -> Evaluator:
    """Return the evaluator of a module on a device, with its kernels built."""
    evaluator = Evaluator(subject_of(spec, modules), device)
    prepared(evaluator, ("float32",))
    return evaluator


# Certifying


def certified(specs: list[Path], run: Run, jobs: int) -> Iterator[Record]:
    """Yield the results that are missing, each as soon as it is known; kernels are built ahead."""
    known = [record for record in read(run.results) if "error" not in record]
    every = itertools.product(specs, run.devices, run.dtypes)
    wanted = [one for one in every if not any(identity(*one, run).items() <= r.items() for r in known)]
    pool = ThreadPoolExecutor(jobs)
    pairs = dict.fromkeys((spec, device) for spec, device, _ in wanted)
    ready = {pair: pool.submit(evaluator_of, pair[0], run.modules, pair[1]) for pair in pairs}
    try:
        for count, (spec, device, dtype) in enumerate(wanted, 1):
            if time.monotonic() > run.deadline:
                click.echo(f"out of time; {len(wanted) - count + 1} are left for the next run")
                return
            found = judged(ready[spec, device], spec, dtype, run)
            record = identity(spec, device, dtype, run) | found
            click.echo(f"[{count}/{len(wanted)}] {line(record)}")
            yield record
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def judged(ready: Future[Evaluator], spec: Path, dtype: str, run: Run) -> Record:
    """Return the findings for one module in one dtype, or why there are none."""
    try:
        evaluator = ready.result()
        begun = time.monotonic()
        evidence = evaluator.evidence(dtype, run.sample)
    except Exception as error:
        return {"error": (str(error).splitlines() or [type(error).__name__])[0]}
    return summary(evidence) | {"inputs": evidence.inputs, "seconds": round(time.monotonic() - begun, 1)}


def summary(evidence: Evidence) -> Record:
    """Return the largest errors of ours and eager's, and whether the local bound of the contract holds."""
    outputs: Record = {}
    for output in evidence.outputs:
        eager = output.eager.ulp if output.eager else math.inf
        extra = output.given.overflows - (output.eager.overflows if output.eager else 0)
        holds = not output.local.breaches and extra <= 0
        worst = output.given.worst[0].inputs if output.given.worst else ()
        outputs[output.name] = {"ours": output.given.ulp, "eager": eager, "holds": holds, "worst": worst}
    return {"outputs": outputs, "holds": all(o["holds"] for o in outputs.values())}


def identity(spec: Path, device: str, dtype: str, run: Run) -> Record:
    """Return the identity of a result: it is not computed again while this is the same."""
    module = run.modules / f"{spec.stem}.py"
    return {
        **dict(zip(KEY, (spec.stem, device, dtype, run.column), strict=True)),
        "module": digest([module] if module.exists() else []),
        "certifier": digest(sorted(Path(certify.__file__).parent.glob("*.py"))),
        "sample": run.sample,
    }


def digest(paths: list[Path]) -> str:
    """Return a digest of the contents of some files."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:12]


def line(record: Record) -> str:
    """Return a result in one line."""
    what = f"{record['name']} {record['device']} {record['dtype']} {record['column']}"
    if "error" in record:
        return f"{what}: {record['error']}"
    parts = (f"{k} {v['ours']:.4g} ulp (eager {v['eager']:.4g})" for k, v in record["outputs"].items())
    return f"{what}: {', '.join(parts)}; {'holds' if record['holds'] else 'BROKEN'}, {record['seconds']} s"


@click.command(help=__doc__)
@click.option("--device", "devices", multiple=True, default=("cpu",), type=click.Choice(["cpu", "cuda"]))
@click.option("--dtype", "dtypes", multiple=True, default=("float32",))
@click.option("--sample", default=EVERY, help="How many float32 inputs; all by default.")
@click.option("--column", default="after", type=click.Choice(COLUMNS))
@click.option("--modules", type=click.Path(path_type=Path), help="A folder of ready-made modules.")
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path))
@click.option("--jobs", default=os.cpu_count() or 1, help="How many to build at a time.")
@click.option("--seconds", default=math.inf, help="Begin no formula after so many seconds.")
@click.option("--table-only", is_flag=True, help="Only write the table.")
@click.argument("names", nargs=-1)
def main(names: tuple[str, ...], **options: Any) -> None:
    """Certifies, and writes the table."""
    results, until = options["results"], time.monotonic() + options["seconds"]
    specs = sorted(path for path in FORMULAS.glob("*.yaml") if not names or path.stem in names)
    results.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        modules = options["modules"] or Path(folder)
        if not options["table_only"]:
            if not options["modules"]:
                build_all(specs, modules, options["jobs"])
            where = (options["devices"], options["dtypes"], options["sample"])
            run = Run(options["column"], modules, *where, results, until)
            for record in certified(specs, run, options["jobs"]):
                with results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
    compact(results)
    results.with_suffix(".md").write_text(table(results), encoding="utf-8")


if __name__ == "__main__":
    main()
