"""Builds in the background: what they keep, and that they end with their process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from budget import HANG
from click.testing import CliRunner
from processes import built, environment

from fusegen.cli import main
from fusegen.runtime import background, compiled_call

SOURCE = "in the background"  # of the stories below: what a compiler of a test's own is given


@pytest.mark.parametrize(
    ("given", "service", "runs"),
    [("", "", True), ("", "true", False), ("0", "", False), ("1", "true", True)],
)
def test_when_builds_run_in_the_background(
    given: str, service: str, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(background.VARIABLE, given)
    monkeypatch.setenv(background.SERVICE, service)
    assert background.allowed() is runs


def waited_for(holds: Callable[[], bool]) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + HANG
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_build_in_the_background_keeps_what_it_made(tmp_path: Path) -> None:
    library = tmp_path / "made_of.so"
    background.build(library, ["cp", "main.cpp", "made.so"], SOURCE, compiled_call.keep)
    waited_for(library.with_suffix(".sum").exists)
    assert library.read_text() == SOURCE
    waited_for(lambda: built(tmp_path) == ["made_of.lock", "made_of.so", "made_of.sum"])


def test_a_build_that_fails_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "made_of.so"
    background.build(library, ["sh", "-c", "echo no such header >&2; exit 1"], SOURCE, compiled_call.keep)
    waited_for(library.with_suffix(".log").exists)
    assert library.with_suffix(".log").read_text() == "no such header\n"
    monkeypatch.setattr(compiled_call, "library", lambda: library)
    monkeypatch.setattr(background, "build", lambda *_: pytest.fail("tried again"))
    monkeypatch.setenv(background.VARIABLE, "1")
    compiled_call.begin()


STORY = """
import pathlib, sys, time
from fusegen.cli import main
from fusegen.runtime import background, compiled_call
folder = pathlib.Path(sys.argv[1])
words = ["sh", "-c", "echo $$ > pid; exec sleep 600"]
background.build(folder / "made_of.so", words, "", compiled_call.keep)
background.build(folder / "made_of.so", words, "", compiled_call.keep)
print("begun", flush=True)
{end}
"""


@pytest.mark.parametrize(
    "end", ["time.sleep(600)", "", "raise SystemExit(1)"], ids=["killed", "ended", "failed"]
)
def test_a_build_ends_with_its_process(end: str, tmp_path: Path) -> None:
    story = [
        sys.executable,
        "-c",
        STORY.replace("{end}", f"while not [*folder.glob('*/pid')]: time.sleep(0.01)\n{end}"),
        str(tmp_path),
    ]
    process = subprocess.Popen(story, env=environment(tmp_path), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    waited_for(
        lambda: (
            any(path.read_text().strip() for path in tmp_path.glob("*/pid")) or process.poll() is not None
        )
    )
    pids = [int(path.read_text()) for path in tmp_path.glob("*/pid")]
    assert len(pids) <= 1  # of two builds of one library, the second leaves it to the first
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    waited_for(lambda: built(tmp_path) == ["made_of.lock"])
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_commands_begin_no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(background.VARIABLE)
    monkeypatch.delenv(background.SERVICE, raising=False)
    assert background.allowed()
    CliRunner().invoke(main, ["list", "specs/none.yaml"])
    assert not background.allowed()
