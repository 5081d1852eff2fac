"""Runs of the harness for problems: builds in several processes, the journal, and a run that resumes."""

import json
import math
import queue
import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from conftest import ROOT, Workshop
from test_kernelbench import HEAD, SCALE, SILU

from benchmarks.kernelbench import __main__ as command
from benchmarks.kernelbench import building, candidates, report
from benchmarks.kernelbench.accuracy import Accuracy, Measured
from benchmarks.kernelbench.building import Built, Job
from benchmarks.kernelbench.candidates import Made
from benchmarks.kernelbench.errors import Errors
from benchmarks.kernelbench.journal import Journal
from benchmarks.kernelbench.session import FAILS, REFUSED, RIGHT, WRONG, Outcome
from benchmarks.kernelbench.timing import COMPILED, EAGER, OURS, Times
from benchmarks.kernelbench.trials import Finding
from benchmarks.kernelbench.turns import Turns
from fusegen.evidence.bench.clock import Spread

PROBLEMS = ROOT / "tests" / "problems"

# Builds

LOADING = """
from pathlib import Path
class Kernels:
    def load(self, kernel, device):
        {load}

KERNELS = Kernels()
"""
MEET = """import time
        place = Path({folder!r})
        (place / kernel).write_text(device)
        for _ in range(6000):  # until the other process is there, a minute at most
            if len(list(place.iterdir())) == 2:
                return
            time.sleep(0.01)
        raise TimeoutError('alone')"""


def made(name: str, text: str, refused: str = "") -> Made:
    return Made(Path(f"{name}.py"), text, refused)


def test_each_kernel_of_a_generated_module_is_a_job_once() -> None:
    text = LOADING.format(load="return")
    several = [
        made("gate", text),
        made("other", SCALE),
        made("same", text),
        made("none", "", "no such file"),
    ]
    assert building.jobs(several, "cuda") == (
        Job("same", text, "forward", "cuda"),
        Job("same", text, "backward", "cuda"),
    )


@pytest.mark.full
def test_two_processes_build_at_the_same_time(tmp_path: Path) -> None:
    text = LOADING.format(load=MEET.format(folder=str(tmp_path)))
    found = list(building.built(building.jobs([made("gate", text)], "cpu"), 2))
    assert sorted((one.candidate, one.kernel, one.failure) for one in found) == [
        ("gate", "backward", ""),
        ("gate", "forward", ""),
    ]


BROKEN = {
    "a build that fails": (LOADING.format(load="raise RuntimeError('no nvcc')"), "RuntimeError: no nvcc"),
    "a module that fails": ("1 / 0\nKERNELS = 1\n", "ZeroDivisionError: division by zero"),
    "no kernels": ("\nKERNELS = 1\n", "AttributeError: 'int' object has no attribute 'load'"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_build_that_fails_is_a_sentence(case: str) -> None:
    text, said = BROKEN[case]
    assert building.build(Job("gate", text, "forward", "cpu")).failure == said


@pytest.mark.full
def test_a_process_that_ends_is_told_and_the_rest_goes_on() -> None:
    text = LOADING.format(load="__import__('os')._exit(3)")
    found = list(building.built(building.jobs([made("gate", text)], "cpu"), 2))
    assert [one.failure for one in found] == ["a process that builds has ended"] * 2


def test_each_build_has_a_line_and_all_have_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [Built("gate", "forward", 41.25, ""), Built("gate", "backward", 0.5, "RuntimeError: no nvcc")]
    monkeypatch.setattr(building, "built", lambda jobs, processes: found)
    command.prepare([made("gate", LOADING.format(load="return"))], "cpu", 2)
    first, second, last = capsys.readouterr().err.splitlines()
    assert first == "building [1/2] gate forward: 41.2 s"
    assert second == "building [2/2] gate backward: 0.5 s fails: RuntimeError: no nvcc"
    assert last.startswith("built 2 kernels in ")


# Candidates


def test_the_committed_module_of_a_spec_is_the_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(candidates, "compiled", pytest.fail)
    spec = Path("specs/kernelbench/matrix_relu.yaml")
    [found] = candidates.made({Path("19_ReLU.py"): spec}, 1).values()
    text = Path("generated/kernelbench/matrix_relu.py").read_text(encoding="utf-8")
    elements = re.findall(r"FUSEGEN_ELEMENT\(out\[0\] = \w+ward\(.*?\)\)", text)
    assert len({*elements}) == 2
    assert all(element in found.text for element in elements)
    assert "_runtime import" not in found.text


def test_a_spec_that_changed_is_compiled(workshop: Workshop) -> None:
    path = workshop.spec("gate", "formula: x + 1")
    spec = path.relative_to(workshop.folder)
    assert candidates.committed(spec) == ""
    assert workshop.run("build").exit_code == 0
    assert candidates.committed(spec) == Path("generated/gate.py").read_text(encoding="utf-8")
    workshop.spec("gate", "formula: x + 2")
    assert candidates.committed(spec) == ""
    assert "x + 2" in candidates.compiled(spec).text


def test_a_spec_of_several_kernels_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its standalone file is made of parts that the committed module does not tell apart."""
    monkeypatch.chdir(ROOT)
    spec = Path("specs/kernelbench/conv3d_min_softmax.yaml")
    assert candidates.committed(spec) == ""
    [found] = candidates.made({Path("24_Conv3d.py"): spec}, 1).values()
    assert "\nRUNTIME = {" not in found.text
    assert "_kernel.cu" in found.text


# The journal

ERRORS = Errors(math.inf, 1e-8, math.nan)
WHOLE = Outcome(
    "57_Gate",
    "linear",
    "gate.py",
    RIGHT,
    (Finding("trials", "none"),),
    Accuracy((Measured("signed", Errors(0.1, 0.2, 0.3), ERRORS),), (Finding("signed", "none"),), 3),
    Times({EAGER: Spread(2.0, 1.5, 2.5, 7), OURS: Spread(1.0, 0.5, 1.5, 7)}, "it is off", 8.25),
    {"loading": 1.5, "trials": 2.0, "times": 10.25},
)


@pytest.mark.parametrize("one", [WHOLE, Outcome("1_None", "", "", RIGHT)])
def test_a_line_holds_the_whole_outcome(one: Outcome, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "found.jsonl", {"chip": "H100"})
    assert journal.known() == {}
    journal.add("k", one)
    assert repr(journal.known()) == repr({"k": one})  # NaN is not equal to itself
    row = json.loads(journal.path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert row["environment"] == {"chip": "H100"}


def test_the_last_line_of_a_problem_counts_and_only_right_ones_are_known(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "found.jsonl", {})
    again = replace(WHOLE, kind="pointwise")
    for key, one in (("a", WHOLE), ("b", WHOLE), ("a", again), ("b", replace(WHOLE, state=WRONG))):
        journal.add(key, one)
    for state in (WRONG, FAILS, REFUSED):
        journal.add(state, replace(WHOLE, state=state))
    assert [(key, one.kind) for key, one in journal.known().items()] == [("a", "pointwise")]


@pytest.mark.parametrize("rest", ['{"key": "b", "prob', '{"key": "b"}\n', "[]\n", "\xff\n", "\n"])
def test_a_line_that_was_cut_off_is_left_out_and_the_next_one_is_whole(rest: str, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "found.jsonl", {})
    journal.add("a", WHOLE)
    with journal.path.open("a", encoding="latin-1") as file:
        file.write(rest)
    journal.add("c", WHOLE)
    assert list(journal.known()) == ["a", "c"]


def test_a_key_is_of_all_that_decides_the_outcome(tmp_path: Path) -> None:
    first, second = tmp_path / "1_A.py", tmp_path / "2_A.py"
    first.write_text("a")
    second.write_text("a")
    own, other = Journal(tmp_path, {"rounds": 7}), Journal(tmp_path, {"rounds": 11})
    gate = made("gate", "x")
    keys = [
        *(own.key(first, each) for each in (None, gate, made("gate", "y"), made("other", "x"))),
        own.key(second, gate),
        other.key(first, gate),
    ]
    first.write_text("b")
    keys.append(own.key(first, gate))
    assert len(set(keys)) == len(keys)
    first.write_text("a")
    assert own.key(first, gate) == keys[1]


def test_progress_tells_of_the_phases_and_of_torch_compile_apart() -> None:
    assert report.progress(WHOLE) == (
        "57_Gate: right in 13.8 s (loading 1.5, trials 2.0, times 2.0, torch.compile 8.2)"
    )
    assert report.progress(Outcome("6_Softmax", "", "", "no module")) == "6_Softmax: no module"
    assert report.phases(WHOLE)[COMPILED] == 8.25


# Runs

WRONG_SCALE = SCALE.replace("a * s", "a + s")


@pytest.fixture
def standalone(tmp_path: Path) -> Path:
    for name, text in (("linearscalesilu", SILU), ("scalebynumber", SCALE)):
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def run(folder: Path, *arguments: str, options: tuple[str, ...] = ()) -> Result:
    common: tuple[Any, ...] = ("--standalone", folder, "--lines", folder / "found.jsonl", "--jobs", 1)
    small = ("--shapes", "tiny", "--device", "cpu", "--no-compile", "--rounds", "2", *options)
    return CliRunner().invoke(command.main, [str(PROBLEMS), *map(str, common), *small, *arguments])


def lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "found.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.full
def test_a_run_resumes_with_what_is_left(standalone: Path) -> None:
    first = run(standalone, "--only", "2")
    assert [row["problem"] for row in lines(standalone)] == ["2_Linear_Scale_Silu"]
    assert first.stderr.startswith("[1/1] 2_Linear_Scale_Silu: right in ")
    with (standalone / "found.jsonl").open("a") as file:
        file.write('{"key": ')  # the run was interrupted here
    second = run(standalone, "--only", "2,5", "--resume", "--json", str(standalone / "all.json"))
    told = second.stderr.splitlines()
    assert told[0] == f"1 of 2 problems are in {standalone / 'found.jsonl'}"
    assert told[1].startswith("[1/1] 5_Scale_By_Number: right in ")
    assert len(told) == 2
    assert second.stdout.splitlines()[-1] == "2 right"
    whole = json.loads((standalone / "all.json").read_text())["problems"]
    assert [one["problem"] for one in whole] == ["2_Linear_Scale_Silu", "5_Scale_By_Number"]
    assert first.stdout.splitlines()[1].split() == second.stdout.splitlines()[1].split()
    third = run(standalone, "--only", "2,5", "--resume")
    assert third.stderr == f"2 of 2 problems are in {standalone / 'found.jsonl'}\n"


@pytest.mark.full
def test_several_processes_run_problems_and_each_outcome_is_in_the_journal(standalone: Path) -> None:
    found = run(standalone, "--only", "2,5", "--workers", "2")
    assert {row["problem"] for row in lines(standalone)} == {"2_Linear_Scale_Silu", "5_Scale_By_Number"}
    assert [line[:6] for line in found.stderr.splitlines()] == ["[1/2] ", "[2/2] "]
    assert found.stdout.splitlines()[-1] == "2 right"
    assert all(row["times"] for row in lines(standalone))


@pytest.mark.parametrize("many", [1, 3])
def test_nothing_is_shared_while_something_is_timed(many: int, tmp_path: Path) -> None:
    turns, events = Turns(tmp_path), queue.SimpleQueue[str]()
    inside, leave = threading.Barrier(many + 1), threading.Event()

    def share() -> None:
        with turns.shared():
            inside.wait()
            leave.wait()
            events.put("shared")

    def take(name: str, turn: Callable[[], AbstractContextManager[None]]) -> None:
        with turn():
            events.put(name)

    others = [threading.Thread(target=share) for _ in range(many)]
    for each in others:
        each.start()
    inside.wait()  # all at once
    timed = threading.Thread(target=take, args=("alone", turns.alone))
    late = threading.Thread(target=take, args=("late", turns.shared))
    for each in (timed, late):
        each.start()
        each.join(0.2)
    assert events.empty()
    leave.set()
    for each in (*others, timed, late):
        each.join()
    order = [events.get() for _ in range(many + 2)]
    assert order == [*["shared"] * many, "alone", "late"]


@pytest.mark.full
def test_a_run_without_resume_or_with_other_options_measures_anew(standalone: Path) -> None:
    run(standalone, "--only", "5")
    run(standalone, "--only", "5")
    run(standalone, "--only", "5", "--resume", options=("--dtype", "bfloat16"))
    assert [row["environment"]["dtype"] for row in lines(standalone)] == ["float32", "float32", "bfloat16"]
    (standalone / "scalebynumber.py").write_text(SCALE + "\n# changed\n")
    run(standalone, "--only", "5", "--resume")
    assert len(lines(standalone)) == 4


@pytest.mark.full
def test_a_wrong_candidate_is_tried_again(standalone: Path) -> None:
    (standalone / "scalebynumber.py").write_text(WRONG_SCALE)
    for _ in range(2):
        assert run(standalone, "--only", "5", "--resume").exit_code == 1
    assert [row["state"] for row in lines(standalone)] == [WRONG, WRONG]


def test_resuming_needs_a_journal() -> None:
    result = CliRunner().invoke(command.main, [str(PROBLEMS), "--resume"])
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, "Error: --resume needs --lines")


@pytest.mark.full
def test_a_candidate_that_was_written_by_hand_needs_no_build(standalone: Path) -> None:
    assert HEAD in SCALE
    assert "building" not in run(standalone, "--only", "5").stderr
