"""The results of `user_formulas`: a file of JSON lines, and the table in docs/reports."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

FORMULAS = Path(__file__).resolve().parent / "formulas"
COLUMNS = ("before", "after")
KEY = ("name", "device", "dtype", "column")
Record = dict[str, Any]


def read(path: Path) -> list[Record]:
    """Return the results in a file, the last one of each key."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return list({tuple(r[k] for k in KEY): r for r in map(json.loads, lines)}.values())


def compact(path: Path) -> None:
    """Leave the last result of each key in a file, in order."""
    found = sorted(read(path), key=lambda r: tuple(r[k] for k in KEY))
    path.write_text("".join(json.dumps(r) + "\n" for r in found), encoding="utf-8")


def table(results: Path) -> str:
    """Return the report: one table for each device and dtype."""
    found = read(results)
    text = [
        "# Formulas of users",
        "",
        "Formulas spelt as their authors spell them, certified by `python -m benchmarks.user_formulas`.",
        "",
    ]
    for device, dtype in sorted({(r["device"], r["dtype"]) for r in found}):
        rows = {(r["name"], r["column"]): r for r in found if (r["device"], r["dtype"]) == (device, dtype)}
        text += [f"## {device}, {dtype}", "", "Errors are the largest, in ulp.", ""]
        text += [counted(column, [r for (_, c), r in rows.items() if c == column]) for column in COLUMNS]
        text.append("")
        text += ["| formula | source | output | before | after | eager | holds before | holds after |"]
        text += ["|---|---|---|---|---|---|---|---|"]
        for name in sorted({name for name, _ in rows}):
            text += entries(name, [rows.get((name, column), {}) for column in COLUMNS])
        text.append("")
    return "\n".join(text)


def counted(column: str, records: list[Record]) -> str:
    """The formulas that hold the contract, and those within 4 ulp whatever eager's error is, counted."""
    held = sum(record.get("holds", False) for record in records)
    near = sum(
        bool(r.get("outputs")) and all(o["ours"] <= 4 for o in r["outputs"].values()) for r in records
    )
    samples = sorted(Counter(record.get("inputs", 0) for record in records).items(), reverse=True)
    tried = ", ".join(f"{count} on {inputs:,} inputs" for inputs, count in samples)
    many = f"{len(records)} formulas ({tried})"
    return f"- {column}: {many}; {held} hold the contract, {near} are within 4 ulp"


def entries(name: str, both: list[Record]) -> Iterator[str]:
    """Yield the rows of one formula: its value, and its gradient."""
    spec = yaml.safe_load((FORMULAS / f"{name}.yaml").read_text(encoding="utf-8"))
    head = f"`{spec['formula']}` ({name}) | {spec['source']}"
    known = [record.get("outputs", {}) for record in both]
    for output in dict.fromkeys(key for outputs in known for key in outputs):
        cells = [outputs.get(output) for outputs in known]
        ours = [f"{cell['ours']:.4g}" if cell else "" for cell in cells]
        eager = next(f"{cell['eager']:.4g}" for cell in reversed(cells) if cell)
        holds = [("yes" if cell["holds"] else "**no**") if cell else "" for cell in cells]
        yield f"| {head} | {output} | {' | '.join((*ours, eager, *holds))} |"
    for column, record in zip(COLUMNS, both, strict=True):
        if "error" in record:
            yield f"| {head} | {column}: {record['error']} | | | | | |"
