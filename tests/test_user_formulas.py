"""The formulas of users that benchmarks/ certifies: each is in the language, with its source."""

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from kernels import load

from benchmarks import corpus
from fusegen.language import library
from fusegen.language.parse import parse_spec

SPECS = sorted((ROOT / "benchmarks" / "formulas").glob("*.yaml"))
table: Any = load(ROOT / "benchmarks" / "user_formulas_table.py", "user_formulas_table")


@pytest.mark.together
@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_users_formula_is_a_spec_with_a_source(path: Path) -> None:
    spec = library.load(path)
    assert (spec.name, bool(spec.source), spec.numerics) == (path.stem, True, "accurate")
    assert len(spec.inputs) == 1  # so that every float32 is tried


def test_the_corpus_has_two_hundred_specs_with_sources_and_tells_silent_ones() -> None:
    found = corpus.specs()
    assert len(found) >= 200
    for name, text in found.items():
        spec = parse_spec(text, f"{name}.yaml")
        assert (spec.name, bool(spec.source), spec.numerics) == (name, True, "accurate")
    kept: dict[str, list[str]] = {"float32": [], "bfloat16": []}
    broken = {"float32": ["value: 9 ulp"], "bfloat16": []}
    warned = ["a: it may be wrong"]
    records: list[dict[str, Any]] = [
        {"name": "a", "column": "after", "broken": broken, "warned": warned},
        {"name": "b", "column": "after", "broken": broken, "warned": []},
        {"name": "c", "column": "after", "broken": kept, "warned": []},
        {"name": "d", "column": "after", "broken": kept, "warned": warned},
        {"name": "e", "column": "after", "error": "it is refused"},
    ]
    assert list(corpus.summary(records)) == [
        "after: 2 of 4 keep the contract (50%); of 2 that break it build warns of 1 and is silent of 1; "
        "it warns of 1 that keep it on the sample; 1 were not tried",
        "  silent: b",
    ]


def test_there_are_at_least_forty_different_formulas() -> None:
    formulas = {library.load(path).formula for path in SPECS}
    assert len(formulas) == len(SPECS) >= 40


def test_the_last_result_of_a_formula_is_the_one_that_is_shown(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"

    def record(column: str, ours: float, name: str = "gelu_erf", inputs: int = 65536) -> str:
        cell = {"ours": ours, "eager": 4.5, "holds": ours <= 4.5, "worst": []}
        where = {"name": name, "device": "cpu", "dtype": "float32", "column": column}
        found = {"outputs": {"value": cell}, "holds": ours <= 4.5, "inputs": inputs}
        return json.dumps({**where, **found}) + "\n"

    records = (record("before", 9.0), record("after", 8.0), record("after", 4.25))
    results.write_text("".join((*records, record("after", 3.0, "gelu_new", 1 << 20))))
    table.compact(results)
    assert len(results.read_text().splitlines()) == 3
    text = table.table(results)
    assert "| value | 9 | 4.25 | 4.5 | **no** | yes |" in text
    assert "- before: 1 formulas (1 on 65,536 inputs); 0 hold the contract, 0 are within 4 ulp" in text
    tried = "1 on 1,048,576 inputs, 1 on 65,536 inputs"
    assert f"- after: 2 formulas ({tried}); 2 hold the contract, 1 are within 4 ulp" in text
