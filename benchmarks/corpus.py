"""Try 271 formulas, collected and random: which keep the contract, and did `build` warn of the others.

    python -m benchmarks.corpus --seconds 900 --results corpus.jsonl     # goes on where it stopped
    python -m benchmarks.corpus --table-only --results corpus.jsonl

The collected ones are in collected.yaml; the random ones have scalars of odd legal values: 0, negative,
tiny and huge. Each is built for the CPU and judged by `certify` on a sample, in float32 and bfloat16, with
its scalars at their defaults and at the values that `certify` tries. Every result is appended to the file
of results at once, under a column such as ``before`` or ``after``.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from benchmarks.random_formulas import formula
from fusegen.evidence.certify.certification import Unwatched, judged, prepared
from fusegen.evidence.certify.evaluator import Evaluator
from fusegen.evidence.certify.subject import of_spec
from fusegen.project import modules, runtime_folder
from fusegen.project.build import compiled_file

HERE = Path(__file__).resolve().parent
RANDOM = 100
ODD = (0.0, -1.0, -0.75, 2.0**-30, -(2.0**-30), 2.0**30, 1e30, 1e-30, 3.0)
DTYPES = ("float32", "bfloat16")
KEY = ("name", "column")
Record = dict[str, Any]


def specs() -> dict[str, str]:
    """Return the texts of the specs, by name."""
    found = {}
    for name, one in yaml.safe_load((HERE / "collected.yaml").read_text(encoding="utf-8")).items():
        keys = {"inputs": ["x"], **one}
        found[name] = _text(name, {**keys, "inputs": {each: {} for each in keys["inputs"]}})
    for number in range(RANDOM):
        drawn, name = formula(number, ODD), f"random_{number}"
        inputs: Record = {each: {} for each in drawn.inputs}
        keys = {"source": "random", "inputs": inputs, "params": drawn.params, "formula": drawn.formula}
        found[name] = _text(name, keys)
    return found


def _text(name: str, keys: Mapping[str, Any]) -> str:
    whole = {"name": name, "summary": "A formula of the corpus.", "dtypes": list(DTYPES), **keys}
    return yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, width=math.inf)


def tried(name: str, text: str, folder: Path, sample: int) -> Record:
    """Return what a formula breaks, by dtype, and what `build` says of it; or why it could not be tried."""
    path, begun = folder / f"{name}.yaml", time.monotonic()
    path.write_text(text, encoding="utf-8")
    output = folder / "generated"
    runtime_folder.write(output)
    try:
        [(module, built)] = modules.built((path,), output).items()
        module.write_text(built.text, encoding="utf-8")
        evaluator = Evaluator(of_spec(compiled_file(path), output), "cpu")
        prepared(evaluator, DTYPES)
        broken = {kind: judged(evaluator, kind, sample, Unwatched()).broken for kind in DTYPES}
    except Exception as error:  # of whatever a formula meets: the others are tried nonetheless
        return {"error": (str(error).splitlines() or [type(error).__name__])[0]}
    return {"broken": broken, "warned": list(built.remarks), "seconds": round(time.monotonic() - begun, 1)}


def read(path: Path) -> list[Record]:
    """Return the results in a file, the last one of each key."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return list({tuple(r[key] for key in KEY): r for r in map(json.loads, lines)}.values())


def line(record: Record) -> str:
    """Return a result in one line."""
    head = f"{record['column']:7} {record['name']:32}"
    if "error" in record:
        return f"{head} not tried: {record['error'][:80]}"
    kept = [f"{kind} {'BROKEN' if broken else 'kept'}" for kind, broken in record["broken"].items()]
    first = next((sentence for broken in record["broken"].values() for sentence in broken), "")
    return f"{head} {', '.join(kept):32} {'warned' if record['warned'] else 'silent'}  {first[:100]}"


def summary(records: list[Record]) -> Iterator[str]:
    """Return a line for each column: the share that keeps the contract, and what `build` warned of."""
    for column in sorted({record["column"] for record in records}):
        own = [r for r in records if r["column"] == column and "error" not in r]
        failed = sum(r["column"] == column for r in records) - len(own)
        broken = [r for r in own if any(r["broken"].values())]
        silent = [r["name"] for r in broken if not r["warned"]]
        needless = sum(bool(r["warned"]) for r in own) - (len(broken) - len(silent))
        kept = len(own) - len(broken)
        yield (
            f"{column}: {kept} of {len(own)} keep the contract ({kept / max(len(own), 1):.0%}); of "
            f"{len(broken)} that break it build warns of {len(broken) - len(silent)} and is silent of "
            f"{len(silent)}; it warns of {needless} that keep it on the sample; {failed} were not tried"
        )
        yield from (f"  silent: {name}" for name in silent)


@click.command(help=__doc__)
@click.option("--column", default="after", help="The column of the results.")
@click.option("--results", default=Path("corpus.jsonl"), type=click.Path(path_type=Path))
@click.option("--sample", default=2**16, help="How many float32 inputs of a function of one tensor.")
@click.option("--seconds", default=math.inf, help="Begin no formula after so many seconds.")
@click.option("--every", default=1, help="Try each K-th formula only, in an order that mixes them.")
@click.option("--table-only", is_flag=True, help="Only print the table.")
@click.argument("names", nargs=-1)
def main(names: tuple[str, ...], **options: Any) -> None:
    """Try the formulas, and print the table."""
    results, until = options["results"], time.monotonic() + options["seconds"]
    known = {r["name"] for r in read(results) if r["column"] == options["column"]}
    every = list(specs().items())[:: options["every"]]
    wanted = [(name, text) for name, text in every if (name in names or not names) and name not in known]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in [] if options["table_only"] else wanted:
            if time.monotonic() > until:
                break
            found = tried(name, text, Path(folder), options["sample"])
            record = {"name": name, "column": options["column"], **found}
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            click.echo(line(record))
    records = read(results)
    if options["table_only"]:
        click.echo("\n".join(map(line, records)))
    click.echo("\n".join(summary(records)))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
