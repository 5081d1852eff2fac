"""Run standalone modules on a folder of problems, and measure them beside eager and torch.compile.

    python -m benchmarks.kernelbench FOLDER                       # modules made of specs of the same names
    python -m benchmarks.kernelbench FOLDER --standalone DIR      # standalone files of the same names
    python -m benchmarks.kernelbench FOLDER --only 57,69 --lines found.jsonl --resume   # what is left
    python -m benchmarks.kernelbench FOLDER --shapes tiny --no-compile --rounds 2   # a trial on the CPU

A problem is a Python file with Model, get_inputs and get_init_inputs; its candidate is the ModelNew of a
standalone module. names.json has the names of the specs of known problems. Of others, names are compared
without a number in front, capitals and underscores, so that 57_Conv2d_ReLU.py finds
specs/kernelbench/conv2d_relu.yaml, else specs/conv2d_relu.yaml, or conv2d_relu.py in DIR; --names tells of
others. Each candidate is tried as the benchmark tries it (one dict, one seed, five trials of the same
inputs), in gradient mode and in evaluation mode, too; it must not write to its inputs. It is timed if it is
right so far. Then its values and training gradients are measured against float64, beside eager's, for
signed inputs of several sizes, NaN, infinities and random parameters. Status 1 says that something is
wrong.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.kernelbench import building, candidates, report, session
from benchmarks.kernelbench.journal import Journal
from benchmarks.kernelbench.problem import key
from benchmarks.kernelbench.session import Options, Outcome
from benchmarks.kernelbench.timing import COMPETITORS, COMPILED
from benchmarks.kernelbench.trials import Place
from benchmarks.kernelbench.turns import Turns

HELP = "\b\n" + str(__doc__).replace("\n\n", "\n\n\b\n")  # lines as they are
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
DTYPES = ("float32", "float16", "bfloat16")  # float64 is what errors are measured against


def chosen(folders: tuple[Path, ...], only: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the problem files that are meant.

    Raises:
        BadParameter: there are none, or none of a name.
    """
    paths = tuple(path for folder in folders for path in sorted(folder.glob("*.py"), key=_order))
    known = {key(path.stem) for path in paths} | {path.stem.partition("_")[0] for path in paths}
    if missing := [name for name in only if not {name, key(name)} & known]:
        raise click.BadParameter(f"there is no problem {', '.join(missing)}", param_hint="--only")
    if not paths:
        raise click.BadParameter("there are no Python files", param_hint="FOLDER")
    names = {key(name) for name in only} | set(only)
    return tuple(p for p in paths if not only or {key(p.stem), p.stem.partition("_")[0]} & names)


def _order(path: Path) -> tuple[int, str]:
    number = path.stem.partition("_")[0]
    return int(number) if number.isdecimal() else 0, path.stem


def spread(_: click.Context, __: click.Parameter, rounds: int) -> int:
    """Return a number of turns: none, or as many as have a spread."""
    if rounds == 1:
        raise click.BadParameter("1 has no spread; give 0, or 2 and more")
    return rounds


@click.command(help=HELP)
@click.argument("folders", nargs=-1, required=True, type=FOLDER, metavar="FOLDER...")
@click.option("--standalone", type=FOLDER, help="A folder of standalone modules.")
@click.option(
    "--names",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="JSON: of each problem whose name does not find it, the name or file of its candidate.",
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="CUDA by default, where there is any.")
@click.option("--dtype", default="float32", type=click.Choice(DTYPES))
@click.option("--shapes", default="declared", type=click.Choice(["tiny", "declared"]))
@click.option("--only", multiple=True, metavar="A,B,C", help="Names or numbers of problems; repeatable.")
@click.option("--json", "file", type=FILE, help="Write the results as JSON at the end.")
@click.option("--lines", "lines", type=FILE, help="Append each result as a line of JSON when it is known.")
@click.option("--resume", is_flag=True, help="Take results that --lines has of the same run.")
@click.option("--no-compile", is_flag=True, help="Leave torch.compile out.")
@click.option(
    "--rounds",
    default=11,
    type=click.IntRange(min=0),
    callback=spread,
    help="Turns of each, two or more; 0 times nobody.",
)
@click.option(
    "--trials",
    default=Options.trials,
    show_default=True,
    type=click.IntRange(min=1),
    help="Trials of other inputs.",
)
@click.option(
    "--workers",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Processes that run problems; one at a time is timed.",
)
@click.option(
    "--jobs",
    default=len(os.sched_getaffinity(0)),
    type=click.IntRange(min=1),
    show_default="the processors",
    help="Processes that build kernels at a time.",
)
def main(folders: tuple[Path, ...], **given: Any) -> None:
    """Runs the trials, the timing and the accuracy checks, and prints the table."""
    if given["resume"] and not given["lines"]:
        raise click.UsageError("--resume needs --lines")
    options = _options(given)
    paths = chosen(folders, tuple(name for names in given["only"] for name in names.split(",")))
    try:
        known = candidates.found(given["standalone"], given["names"])
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--names") from None
    wanted = {path: file for path in paths if (file := known.of(path.stem))}
    made = candidates.made(wanted, given["jobs"])
    ran = report.environment(options)
    journal = Journal(given["lines"], ran) if given["lines"] else None
    before = _before(journal, paths, made) if journal and given["resume"] else {}
    left = tuple(path for path in paths if path not in before)
    prepare([made[path] for path in left if path in made], options.place.device, given["jobs"])
    run = in_turn if given["workers"] == 1 else partial(side_by_side, given["workers"])
    found = before | watched(run(left, made, options), len(left), made, journal)
    ordered = [found[path] for path in paths]
    if given["file"]:
        given["file"].write_text(report.as_json(ran, ordered) + "\n", encoding="utf-8")
    click.echo("\n".join(report.table(ordered)))
    raise SystemExit(any(one.findings for one in ordered))


def _options(given: dict[str, Any]) -> Options:
    """Return the options of a run.

    Raises:
        BadParameter: CUDA is asked for, and there is none.
    """
    device = given["device"] or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise click.BadParameter("PyTorch finds no CUDA device", param_hint="--device")
    left_out = {COMPILED} if given["no_compile"] else set()
    competitors = tuple(name for name in COMPETITORS if name not in left_out)
    place = Place(device, getattr(torch, given["dtype"]))
    return Options(place, given["shapes"], competitors, given["rounds"], given["trials"])


def _before(
    journal: Journal, paths: tuple[Path, ...], made: dict[Path, candidates.Made]
) -> dict[Path, Outcome]:
    """Return the outcomes of an earlier run that need no other; one line says how many."""
    known = journal.known()
    keys = {path: journal.key(path, made.get(path)) for path in paths}
    found = {path: known[key] for path, key in keys.items() if key in known}
    click.echo(f"{len(found)} of {len(paths)} problems are in {journal.path}", err=True)
    return found


def prepare(made: list[candidates.Made], device: str, processes: int) -> None:
    """Build the kernels of candidates; a line tells of each, and one of all."""
    jobs, begin = building.jobs(made, device), time.perf_counter()
    for number, one in enumerate(building.built(jobs, processes), 1):
        told = f" fails: {one.failure}" if one.failure else ""
        click.echo(
            f"building [{number}/{len(jobs)}] {one.candidate} {one.kernel}: {one.seconds:.1f} s{told}",
            err=True,
        )
    if jobs:
        click.echo(f"built {len(jobs)} kernels in {time.perf_counter() - begin:.1f} s", err=True)


Outcomes = Iterator[tuple[Path, Outcome]]  # of problems, each as soon as it is known


def in_turn(paths: tuple[Path, ...], made: dict[Path, candidates.Made], options: Options) -> Outcomes:
    """Return the outcomes of this process."""
    return zip(paths, session.outcomes(paths, made, options), strict=True)


def side_by_side(
    workers: int, paths: tuple[Path, ...], made: dict[Path, candidates.Made], options: Options
) -> Outcomes:
    """Yield the outcomes of several processes, of which one at a time has the GPU when it is timed."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(workers, context) as pool:
        own = replace(options, turns=Turns(Path(folder)))
        due = {pool.submit(session.outcome, path, made.get(path), own): path for path in paths}
        for done in as_completed(due):
            yield due[done], done.result()


def watched(
    outcomes: Outcomes, count: int, made: dict[Path, candidates.Made], journal: Journal | None
) -> dict[Path, Outcome]:
    """The outcomes; each is printed, with the seconds of its phases, and written as soon as it is known."""
    found: dict[Path, Outcome] = {}
    for path, one in outcomes:
        found[path] = one
        click.echo(f"[{len(found)}/{count}] {report.progress(one)}", err=True)
        if journal:
            journal.add(journal.key(path, made.get(path)), one)
    return found


if __name__ == "__main__":
    main()
