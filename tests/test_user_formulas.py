"""The formulas of users that benchmarks/ certifies: each is in the language, with its source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from kernels import load

from fusegen.pipeline import compilation

SPECS = sorted((ROOT / "benchmarks" / "formulas").glob("*.yaml"))
table: Any = load(ROOT / "benchmarks" / "user_formulas_table.py", "user_formulas_table")


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_users_formula_is_a_spec_with_a_source(path: Path) -> None:
    spec = compilation(path).spec
    assert (spec.name, bool(spec.source), spec.numerics) == (path.stem, True, "accurate")
    assert len(spec.inputs) == 1  # so that every float32 is tried


def test_there_are_at_least_forty_different_formulas() -> None:
    formulas = {compilation(path).spec.formula for path in SPECS}
    assert len(formulas) == len(SPECS) >= 40


def test_the_last_result_of_a_formula_is_the_one_that_is_shown(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"

    def record(column: str, ours: float) -> str:
        cell = {"ours": ours, "eager": 4.5, "holds": ours <= 4.5, "worst": []}
        where = {"name": "gelu_erf", "device": "cpu", "dtype": "float32", "column": column}
        return (
            json.dumps({**where, "outputs": {"value": cell}, "holds": ours <= 4.5, "inputs": 65536}) + "\n"
        )

    results.write_text(record("before", 9.0) + record("after", 8.0) + record("after", 4.25))
    table.compact(results)
    assert len(results.read_text().splitlines()) == 2
    text = table.table(results)
    assert "| value | 9 | 4.25 | 4.5 | **no** | yes |" in text
    assert "- after: 1 formulas, 65,536 inputs each; 1 hold the contract, 0 are within 4 ulp" in text
