"""Kernels that one model runs: built side by side, and told of while they are built."""

import io
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from budget import HANG
from processes import built, script, told

import fusegen
from fusegen.models.lift import pair
from fusegen.runtime import progress, together
from generated import hardsigmoid, relu6

USE = """
import torch
from generated import hardsigmoid, relu6
from fusegen.runtime import together
together.join([hardsigmoid.KERNELS, relu6.KERNELS])
x = torch.ones(3)
try:
    print(hardsigmoid.hardsigmoid(x).tolist())
    print(relu6.relu6(x).tolist())
except RuntimeError as error:
    print(error)
"""
RESULTS = "[0.6666666865348816, 0.6666666865348816, 0.6666666865348816]\n[1.0, 1.0, 1.0]\n"
# a compiler that goes on once another one has begun
MEETING = """case "$*" in *main.cpp*)
  touch {folder}/$$
  for k in $(seq {most}); do [ $(ls {folder} | wc -l) -ge 2 ] && exec c++ "$@"; sleep 0.1; done
  echo alone; exit 1;;
esac
exec c++ "$@"
"""
FAILING = """case "$*" in *main.cpp*) grep -q '_MODULE "{name}"' main.cpp && exit 1;; esac
exec c++ "$@"
"""


def test_kernels_of_a_model_are_built_side_by_side(tmp_path: Path) -> None:
    meeting, builds = tmp_path / "meeting", tmp_path / "builds"
    meeting.mkdir()
    builds.mkdir()
    compiler = script(tmp_path, "cxx", MEETING.format(folder=meeting, most=10 * HANG))
    assert told(USE, builds, CXX=compiler, MAX_JOBS="2") == RESULTS
    libraries = [name for name in built(builds) if name.endswith(".so")]
    assert len(libraries) == 4  # a binding and float32 of each
    assert told(USE, builds, CXX=compiler, MAX_JOBS="2", PATH="/nonexistent") == RESULTS


@pytest.mark.parametrize(("name", "lines"), [("hardsigmoid", 1), ("relu6", 2)])
def test_a_companion_that_fails_is_told_of_at_its_own_first_use(
    name: str, lines: int, tmp_path: Path
) -> None:
    compiler = script(tmp_path, "cxx", FAILING.format(name=name))
    *results, last = told(USE, tmp_path, CXX=compiler).splitlines()
    assert results == RESULTS.splitlines()[: lines - 1]
    start = f"{name}: the forward kernel did not compile for cpu; the compiler's output is in "
    assert last.startswith(start)


def companions(kernels: object, kernel: str) -> set[tuple[str, str]]:
    return {(each.name, its_pass) for each, its_pass in together.companions(kernels, kernel)}


def test_companions_are_of_the_same_pass_or_of_the_passes_that_are_needed() -> None:
    sources = SimpleNamespace(joined="")
    one, two, other = (SimpleNamespace(name=name, sources=sources) for name in ("one", "two", "other"))
    assert companions(one, "forward") == set()
    together.join([one, two])
    together.join([two, other], "backward")
    assert companions(one, "forward") == {("two", "forward")}
    assert companions(two, "forward") == {
        *(("one", "forward"), ("one", "backward"), ("other", "forward"), ("other", "backward")),
        ("two", "backward"),
    }
    foreign = type("Activation", (), {})()
    together.join([one, foreign])
    assert companions(one, "backward") == {("two", "backward")}


def test_models_join_their_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[set[str]] = []

    def join(several: Iterable[Any], *passes: str) -> None:
        joined.append({*passes, *(each.name for each in several)})

    monkeypatch.setattr(together, "join", join)

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Hardsigmoid(), torch.nn.ReLU6())
    fusegen.patch(model)
    assert joined.pop() == {"hardsigmoid", "relu6"}
    file = tmp_path / "both.py"
    file.write_text(
        f"from {hardsigmoid.__name__} import hardsigmoid\nfrom {relu6.__name__} import relu6\n",
        encoding="utf-8",
    )
    pair._imported(file)
    assert joined.pop() == {"hardsigmoid", "relu6", "forward", "backward"}


@pytest.mark.parametrize(("jobs", "most"), [("3", 3), ("0", 1), ("", None), ("many", None)])
def test_torchs_variable_says_how_many_builds_run(
    jobs: str, most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_JOBS", jobs)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3, 4})
    assert together.jobs() == (most or 5)


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


@pytest.mark.parametrize(
    ("titles", "text"),
    [
        (["gelu forward for cpu"], "fusegen: building gelu forward for cpu"),
        (["a forward for cpu", "b forward for cpu"],
         "fusegen: building 2 kernels (a forward for cpu, b forward for cpu)"),
    ],
)  # fmt: skip
def test_a_build_that_takes_seconds_is_told_of(
    titles: list[str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SOON", 0.0)
    monkeypatch.setattr(progress, "STEP", 0.01)
    monkeypatch.delenv("FUSEGEN_PROGRESS")
    for stream in (io.StringIO(), Terminal()):
        monkeypatch.setattr("sys.stderr", stream)
        shown = progress.Progress(titles)
        with shown:
            shown.done()
            while len(stream.getvalue()) < len(text):
                pass
        if isinstance(stream, Terminal):
            state = ": 1 of 2" if len(titles) > 1 else ""
            lines = stream.getvalue().split("\r\x1b[K")
            assert (lines[0], lines[1], lines[-1]) == ("", f"{text}{state}, 0 s", "")
        else:
            assert stream.getvalue() == f"{text}\n"


def test_the_line_fits_the_terminal_and_a_fast_build_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = progress.Progress([f"kernel_{k} forward for cpu" for k in range(9)])
    assert len(shown.line(60)) < 60
    assert shown.line(60).endswith("...: 0 of 9, 0 s")
    for value, soon in (("", 1e9), ("none", 0.0)):
        monkeypatch.setattr(progress, "SOON", soon)
        monkeypatch.setenv("FUSEGEN_PROGRESS", value)
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        with shown:
            shown.done()
        assert stream.getvalue() == ""
        shown = progress.Progress(["x"])
