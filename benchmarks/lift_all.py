"""Lifts every problem file of some folders and counts what becomes of them.

    python -m benchmarks.lift_all FOLDER... [--every] [--match PATTERN]

Each file defines Model, get_inputs and get_init_inputs. Specs and modules go to a temporary folder. Each
module is compared with its model, at small sizes where those of the file are large. A line for each file
says what became of it: one module (whole), PyTorch's calls between kernels (partial), refused, differs, or
failed with an exception, which is an error in fusegen. The exit status is 1 if one differs or failed.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

from click.testing import CliRunner, Result

from fusegen.cli import main

WHOLE, PARTIAL, REFUSED, DIFFERS, FAILED = "whole", "partial", "refused", "differs", "failed"
BAD = (DIFFERS, FAILED)
REGIONS = re.compile(r"^(\d+ regions? in \d+ kernels?)$", re.MULTILINE)
NOT_COMPARED = "nothing was compared"


def outcome(result: Result) -> tuple[str, str]:
    """Return the outcome of a file, and a detail in one line."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return FAILED, f"{type(result.exception).__name__}: {result.exception}".splitlines()[0]
    if result.exit_code and NOT_COMPARED not in result.output:
        said = [line for line in result.output.splitlines() if ": " in line and "this runs" not in line]
        first = said[0] if said else f"status {result.exit_code}"
        return DIFFERS if "is not the model" in first else REFUSED, first
    note = f", {NOT_COMPARED}" if NOT_COMPARED in result.output else ""
    regions = REGIONS.search(result.output)
    return (PARTIAL, regions[1] + note) if regions else (WHOLE, f"1 kernel{note}")


def lifted(path: Path, options: list[str]) -> tuple[str, str]:
    """Return the outcome of a problem file."""
    return outcome(CliRunner().invoke(main, ["lift", f"{path}:Model", "--partial", *options]))


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--every", action="store_true", help="a kernel for single operations, too")
    parser.add_argument("--match", default="", help="only files whose names have this in them")
    return parser.parse_args()


def run() -> int:
    """Lift all files, print a line for each and the counts; the exit status."""
    given = arguments()
    paths = [path.resolve() for folder in given.folders for path in sorted(folder.rglob("*.py"))]
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TORCH_EXTENSIONS_DIR", f"{folder}/extensions")
        for path in (path for path in paths if given.match in path.name):
            own = Path(folder) / path.parent.name / path.stem
            own.mkdir(parents=True)
            os.chdir(own)
            kind, detail = lifted(path, ["--every"] * given.every)
            counts[kind] += 1
            print(f"{kind:8} {path.parent.name}/{path.name}: {detail}", flush=True)
    print(", ".join(f"{kind} {counts[kind]}" for kind in (WHOLE, PARTIAL, REFUSED, DIFFERS, FAILED)))
    return 1 if any(counts[kind] for kind in BAD) else 0


if __name__ == "__main__":
    sys.exit(run())
