"""The files for other people's projects and for CI: hooks of pre-commit, the Action, the matrix."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, Workshop

from fusegen.tools.doctor import OLDEST

HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
ACTION = yaml.safe_load((ROOT / ".github/actions/check/action.yml").read_text(encoding="utf-8"))
CI = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
MATRIX = (ROOT / ".ci/matrix").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/projects.md").read_text(encoding="utf-8")
EXAMPLES = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def test_the_hooks_have_the_keys_that_pre_commit_needs() -> None:
    assert [hook["id"] for hook in HOOKS] == ["fusegen-check", "fusegen-build"]
    for hook in HOOKS:
        assert hook.keys() == {"id", "name", "description", "entry", "language", "files", "pass_filenames"}
        assert (hook["language"], hook["pass_filenames"]) == ("python", False)


@pytest.mark.parametrize(
    ("hook", "file", "runs"),
    [
        ("fusegen-check", "specs/gate.yaml", True),
        ("fusegen-check", "src/gates/generated/gate.py", True),
        ("fusegen-check", "src/gates/net.py", False),
        ("fusegen-build", "specs/kernelbench/gate.yaml", True),
        ("fusegen-build", "specs/launch.toml", True),
        ("fusegen-build", "pyproject.toml", True),
        ("fusegen-build", "generated/gate.py", False),
    ],
)
def test_a_hook_runs_for_its_files(hook: str, file: str, runs: bool) -> None:
    [pattern] = [each["files"] for each in HOOKS if each["id"] == hook]
    assert bool(re.search(pattern, file)) is runs


def test_the_entries_of_the_hooks_run_in_a_new_project(workshop: Workshop) -> None:
    check, build = (shlex.split(hook["entry"])[1:] for hook in HOOKS)
    for entry in (check, build):
        result = workshop.run(*entry)
        assert (result.exit_code, result.stderr.splitlines()[0]) == (2, "specs: there are no specs here")
    workshop.spec("gate", "formula: x + 1")
    assert workshop.run(*check).exit_code == 1
    assert workshop.run(*build).exit_code == 0
    assert workshop.run(*check).exit_code == 0


def test_the_example_of_the_page_has_hooks_and_inputs_that_there_are() -> None:
    hooks, steps = EXAMPLES
    assert {hook["id"] for hook in hooks["repos"][0]["hooks"]} == {hook["id"] for hook in HOOKS}
    step = steps["steps"][1]
    assert set(step["with"]) <= ACTION["inputs"].keys()
    assert step["uses"].partition("@")[0].endswith("fusegen/.github/actions/check")


def run_of(name: str) -> dict[str, Any]:
    """A step of the Action."""
    [step] = [each for each in ACTION["runs"]["steps"] if each.get("name") == name]
    return dict(step)


def acted(workshop: Workshop, specs: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the check of the Action in a project."""
    step = run_of("Check")
    inputs = {"specs": specs, "output": ACTION["inputs"]["output"]["default"]}
    given = {key: inputs[re.findall(r"inputs\.(\w+)", value)[0]] for key, value in step["env"].items()}
    names = {"GITHUB_OUTPUT": "out.txt", "GITHUB_STEP_SUMMARY": "summary.md", "RUNNER_TEMP": "."}
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    settings = os.environ | names | given | {"PYTHONPATH": str(ROOT), "PATH": path}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]  # as GitHub runs it
    return subprocess.run(command, cwd=workshop.folder, env=settings, capture_output=True, text=True)


@pytest.mark.full
def test_the_action_annotates_and_summarises(built: Workshop) -> None:
    built.spec("gate", "formula: x * 4")
    done = acted(built)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("::error file=specs/gate.yaml,line=3::")
    assert "| cuda forward, backward; cpu forward, backward |" in Path("summary.md").read_text(
        encoding="utf-8"
    )
    assert '"kind": "difference"' in Path("fusegen-check.jsonl").read_text(encoding="utf-8")
    assert Path("out.txt").read_text(encoding="utf-8") == "records=./fusegen-check.jsonl\n"


@pytest.mark.full
def test_names_of_specs_are_neither_options_nor_commands(built: Workshop) -> None:
    done = acted(built, "gate --version $(touch made) *")
    assert done.returncode == 2
    assert "::error file=--version::there is no spec '--version'" in done.stdout
    assert not Path("made").exists()


def test_no_step_has_an_input_in_its_text() -> None:
    """An input in the text of a script would be run as a part of it."""
    jobs = [step for job in CI["jobs"].values() for step in job["steps"]]
    texts = [step.get("run", "") for step in (*ACTION["runs"]["steps"], *jobs)]
    assert not [text for text in texts if re.search(r"\$\{\{ *(inputs|github)\.", text)]


def test_the_matrices_of_ci_and_of_make_are_the_versions_that_are_supported() -> None:
    of_ci = CI["jobs"]["smoke"]["strategy"]["matrix"]
    of_make = dict(re.findall(r'"\$\{(\w+):-(.+?)\}"', MATRIX))
    assert of_make["PYTHONS"].split() == of_ci["python"]
    assert of_make["TORCHES"].split() == of_ci["torch"]
    assert of_make["COMPILERS"].split() == of_ci["compiler"]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r"Python :: (3\.\d+)", project) == of_ci["python"]
    assert tuple(map(int, of_ci["torch"][0].split(".")[:2])) == OLDEST["stable"]


def test_ci_runs_the_scripts_of_the_repository() -> None:
    steps = [step for job in CI["jobs"].values() for step in job["steps"]]
    assert {".ci/run", ".ci/smoke"} <= {step.get("run") for step in steps}
    assert "./.github/actions/check" in {step.get("uses") for step in steps}
    for name in ("run", "smoke", "matrix"):
        path = ROOT / ".ci" / name
        assert os.access(path, os.X_OK)
        assert subprocess.run(["bash", "-n", str(path)]).returncode == 0


@pytest.mark.full
def test_the_matrix_says_what_is_not_here(tmp_path: Path) -> None:
    """Without a Python no package is looked up, but the wheel is built."""
    settings = os.environ | {"PYTHONS": "3.99", "PYENV_ROOT": str(tmp_path), "PYTHON": sys.executable}
    settings |= {"PIP_NO_BUILD_ISOLATION": "0"}  # which is how pip spells true
    done = subprocess.run([str(ROOT / ".ci/matrix")], env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split(maxsplit=3) for line in done.stdout.splitlines()]
    assert rows == [["Python", "PyTorch", "compiler", "result"], ["3.99", "-", "-", "no such Python here"]]
