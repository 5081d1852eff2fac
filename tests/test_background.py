"""Builds in the background: what they keep, and that they end with their process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from budget import waited_for
from click.testing import CliRunner
from processes import built, environment

import generated._runtime
from fusegen.cli import main
from fusegen.runtime import background, compiled_call

MADE_BY = "made by a test\n"
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


def built_by(library: Path, *words: str) -> None:
    """Begins a build by a command."""
    background.build(library, [*words], {"main.cpp": SOURCE}, compiled_call.keep, MADE_BY)


def test_a_build_in_the_background_keeps_what_it_made(tmp_path: Path) -> None:
    library = tmp_path / "made_of.so"
    built_by(library, "cp", "main.cpp", "made.so")
    waited_for(library.exists)
    assert library.read_text() == SOURCE
    waited_for(lambda: built(tmp_path) == ["made_of.lock", "made_of.so", "made_of.sum"])


def test_a_build_that_fails_is_tried_again_by_other_tools_or_a_day_later(tmp_path: Path) -> None:
    library, log = tmp_path / "made_of.so", tmp_path / "made_of.log"
    built_by(library, "sh", "-c", "echo no such header >&2; exit 1")
    waited_for(log.exists)
    assert log.read_text() == f"{MADE_BY}no such header\n"
    assert background.has_failed(library, MADE_BY)
    assert not background.has_failed(library, "made by others\n")
    os.utime(log, (0, time.time() - background.AGAIN - 1))
    assert not background.has_failed(library, MADE_BY)


def test_what_cannot_begin_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        built_by(tmp_path / "made_of.so", "true")
    assert built(tmp_path) == ["made_of.lock"]
    assert [path.name for path in tmp_path.iterdir()] == ["made_of.lock"]


def test_a_process_begins_one_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv(background.VARIABLE, "1")
    monkeypatch.setitem(vars(torch.ops), compiled_call.BEGUN, "")  # which is put back at the end
    del vars(torch.ops)[compiled_call.BEGUN]
    begun: list[Path] = []
    for of in (compiled_call, generated._runtime.compiled_call):
        monkeypatch.setattr(of.background, "build", lambda library, *_: begun.append(library))
        of.begin()
        of.begin()
    assert [path.name for path in begun] == [compiled_call.library().name]


STORY = """
import pathlib, signal, sys, time
from fusegen.runtime import background, compiled_call
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
folder = pathlib.Path(sys.argv[1])
words = ["sh", "-c", "echo $$ > pid; exec sleep 600"]
background.build(folder / "made_of.so", words, {}, compiled_call.keep, "")
while not any(path.read_text() for path in folder.glob("*/pid")):
    time.sleep(0.01)
print("begun", flush=True)
{end}
"""
ENDS = {
    "killed": "time.sleep(600)",
    "ended": "sys.stdin.read(1)",
    "failed": "sys.stdin.read(1); raise SystemExit(1)",
    "forked": "import os; os.fork() or time.sleep(2); sys.stdin.read(1)",
}


@pytest.mark.few(1)
@pytest.mark.parametrize("end", ENDS)
def test_a_build_ends_with_its_process(end: str, tmp_path: Path) -> None:
    story = [sys.executable, "-c", STORY.replace("{end}", ENDS[end]), str(tmp_path)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
    process = subprocess.Popen(story, env=environment(tmp_path), text=True, **pipes)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    [pid] = [int(path.read_text()) for path in tmp_path.glob("*/pid")]
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it, to all that are its
    assert process.stdout.readline() == "interrupted\n"
    assert Path(f"/proc/{pid}").exists()
    if end == "killed":
        process.kill()
    process.stdin.close()
    process.wait()
    waited_for(lambda: built(tmp_path) == ["made_of.lock"] and not Path(f"/proc/{pid}").exists())
    process.stdout.close()


def test_commands_begin_no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(background.VARIABLE)
    monkeypatch.delenv(background.SERVICE, raising=False)
    assert background.allowed()
    CliRunner().invoke(main, ["list", "specs/none.yaml"])
    assert not background.allowed()
