"""Count the formulas that take a method, by pass, device and dtype: a table in Markdown.

    nice python -m benchmarks.methods_taken --results taken.jsonl  # 15 minutes; goes on where it stopped

The formulas are the committed specs, those of users, the collected ones of the corpus and 100 random ones.
Each is compiled up to its plan; nothing is built.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import yaml

from benchmarks.corpus import HERE
from benchmarks.corpus import specs as corpus
from benchmarks.random_formulas import formula
from fusegen.core.method import Formula, Method, Pass, Piecewise, Segmented, Table, Verified, parts
from fusegen.core.targets import Device
from fusegen.project.build import compiled_file

FIRST, RANDOM = 1000, 100
GROUPS = ("committed", "users", "collected", "random")


def specs(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the specs, each with its group; what is no file yet is written to a folder."""
    yield from (("committed", path) for path in sorted((HERE.parent / "specs").rglob("*.yaml")))
    yield from (("users", path) for path in sorted((HERE / "formulas").glob("*.yaml")))
    texts = {("collected", name): text for name, text in corpus().items() if not name.startswith("random_")}
    for number in range(FIRST, FIRST + RANDOM):
        name = f"random_{number}"
        texts["random", name] = f"name: {name}\nsummary: A test.\n{formula(number).body}"
    for (group, name), text in texts.items():
        every = {key: value for key, value in yaml.safe_load(text).items() if key != "dtypes"}
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(every, sort_keys=False, allow_unicode=True), encoding="utf-8")
        yield group, path


def words(method: Method) -> list[str]:
    """Return the names of the arithmetics, grids and constructors in a method."""
    found = set[str]()
    for part in parts(method):
        match part:
            case Formula(arithmetic):
                found.add(arithmetic.name)
            case Table(arithmetic):
                found |= {"TABLE", arithmetic.name}
            case Piecewise(grid):
                found.add(grid.name)
            case Segmented() | Verified():
                found.add(type(part).__name__.upper())
    return sorted(found)


def taken(path: Path) -> dict[str, list[str]]:
    """Return the words of the method of each pass, device and dtype of a spec."""
    compiled = compiled_file(path)
    return {
        f"{which.value}, {device.name}, {dtype}": words(compiled.plan[which, device, dtype])
        for which in Pass
        for device in Device
        for dtype in compiled.spec.dtypes
    }


def table(results: Path) -> Iterator[str]:
    """Yield the rows of a method's table: of formulas by group, then of each pass, device and dtype."""
    found = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    counts: Counter[tuple[str, str, str]] = Counter()
    for record in found:
        own = {(word, place) for place, every in record["taken"].items() for word in every}
        own |= {(word, "formulas") for word, _ in own}
        counts.update((word, place, record["group"]) for word, place in own)
    of_all = Counter(record["group"] for record in found)
    yield f"| method | where | {' | '.join(f'{group} ({of_all[group]})' for group in GROUPS)} |"
    yield "|" + "---|" * (2 + len(GROUPS))
    rows = {key[:2] for key in counts}
    for word, place in sorted(rows, key=lambda row: (row[0], row[1] != "formulas", row[1])):
        yield f"| {word} | {place} | {' | '.join(str(counts[word, place, group]) for group in GROUPS)} |"


@click.command()
@click.option("--results", type=click.Path(path_type=Path), required=True, help="A file of JSON lines.")
def main(results: Path) -> None:
    """Compile the formulas that the file lacks, and print the table."""
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    known = {(record["group"], record["name"]) for record in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as folder, results.open("a", encoding="utf-8") as out:
        for group, path in specs(Path(folder)):
            if (group, path.stem) not in known:
                record = {"group": group, "name": path.stem, "taken": taken(path)}
                out.write(json.dumps(record) + "\n")
                out.flush()
    click.echo("\n".join(table(results)))


if __name__ == "__main__":
    main()
