"""Targets: a further one is a further row."""

from dataclasses import replace

import pytest
from conftest import ROOT, library_spec

from fusegen.core.targets import TARGETS, Device
from fusegen.project import build


def test_devices_are_the_rows_of_the_table() -> None:
    assert list(Device) == [Device.CUDA, Device.CPU] == [TARGETS["cuda"], TARGETS["cpu"]]
    assert all(row.like == row for row in Device)


def test_a_further_target_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of another name prints the text of CUDA, and leaves that of the others as it is."""
    monkeypatch.setitem(TARGETS, "cuda2", replace(Device.CUDA, name="cuda2"))
    found = build.sources(build.compiled_file(ROOT / "specs" / "gelu.yaml"))
    assert list(found) == ["cuda", "cpu", "cuda2"]
    assert found["cuda2"] == found["cuda"]
    monkeypatch.undo()
    assert {"cuda": found["cuda"], "cpu": found["cpu"]} == build.sources(library_spec("gelu"))


def test_the_text_follows_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that divides is not told of as one that multiplies by the inverse."""
    row = replace(Device.CUDA, name="cuda2", reciprocals=False)
    monkeypatch.setitem(TARGETS, "cuda2", row)
    found = build.sources(build.compiled_file(ROOT / "specs" / "hardsigmoid.yaml"))
    lines = {name: [line for line in text.splitlines() if " / M(6" in line] for name, text in found.items()}
    assert (lines["cuda"], lines["cuda2"] == lines["cpu"]) == ([], True)
