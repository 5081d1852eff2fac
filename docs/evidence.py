"""The README's tables of accuracy, as the certificates have it.

    python docs/evidence.py

A cell is the largest error in units of the last place over all 2**32 float32 inputs, and how many results
are not correctly rounded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GENERATED = Path(__file__).resolve().parents[1] / "generated"
SPECS = ("gelu", "gelu_tanh", "silu", "mish", "quick_gelu", "sigmoid", "tanh", "elu")
NAMES = {"cuda": "CUDA", "cpu": "CPU"}


def table(device: str) -> list[str]:
    """The lines of one device's table in Markdown."""
    lines = [
        f"| {NAMES[device]}, float32 | ours | eager | ours, gradient | eager, gradient |",
        "|---|---|---|---|---|",
    ]
    for name in SPECS:
        text = (GENERATED / f"{name}.certificate.json").read_text(encoding="utf-8")
        evidence = json.loads(text)[device]["dtypes"]["float32"]
        outputs = [evidence["value"], evidence["gradient of x"]]
        cells = [cell(output[who]) for output in outputs for who in ("given", "eager")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def cell(accuracy: dict[str, Any]) -> str:
    """The figures of one output: ``3.69; 194,102,958``."""
    ulp = float(accuracy["ulp"])
    size = "infinite" if ulp == float("inf") else f"{ulp:.2f}" if ulp < 1000 else f"{ulp:.1e}"
    return f"{size}; {accuracy['misrounded']:,}"


if __name__ == "__main__":
    for device in NAMES:
        print("\n".join(table(device)) + "\n")
