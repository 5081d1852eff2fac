"""The README, and docs/speed.md, say what the evidence says."""

from __future__ import annotations

import re

import pytest
from conftest import ROOT
from kernels import load

evidence = load(ROOT / "docs" / "evidence.py", "evidence")
speed = load(ROOT / "docs" / "speed.py", "speed")


@pytest.mark.parametrize("device", evidence.NAMES)
def test_the_tables_of_accuracy_are_the_certificates(device: str) -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    head, *rows = evidence.table(device)
    start = lines.index(head)
    assert lines[start + 1 : start + 1 + len(rows)] == rows


@pytest.mark.parametrize("name", speed.TABLES)
def test_the_tables_of_speeds_are_what_was_measured(name: str) -> None:
    told = {"headline": "README.md", "bench": "docs/speed.md"}[name]
    lines = (ROOT / told).read_text(encoding="utf-8").splitlines()
    head, *rows = speed.table(name)
    start = lines.index(head)
    assert lines[start + 1 : start + 1 + len(rows)] == rows


@pytest.mark.parametrize("told", ["README.md", "docs/speed.md"])
def test_every_picture_and_every_page_that_is_named_is_there(told: str) -> None:
    text = (ROOT / told).read_text(encoding="utf-8")
    named = [path for path in re.findall(r"\]\((.+?)\)", text) if not path.startswith("http")]
    assert any(path.endswith(".svg") for path in named)
    assert all(((ROOT / told).parent / path).is_file() for path in named)


@pytest.mark.parametrize(
    ("ulp", "text"),
    [
        (3.694, "3.69; 1,234"),
        (52.01, "52.01; 1,234"),
        (16777000.0, "1.7e+07; 1,234"),
        ("inf", "infinite; 1,234"),
    ],
)
def test_a_cell_is_an_error_and_a_count(ulp: object, text: str) -> None:
    assert evidence.cell({"ulp": ulp, "misrounded": 1234}) == text
