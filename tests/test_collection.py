"""The tests for a GPU are found beside other plugins, and where the compiler's dependencies are missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from budget import HANG
from conftest import NEEDED, ROOT

HIDING = f"import sys\nsys.modules.update(dict.fromkeys({NEEDED!r}))\n"
WARNING = """
import warnings
def pytest_configure(config): warnings.warn("some plugin switches itself off", UserWarning)
def pytest_collection_finish(session): warnings.warn("some plugin has an old name", DeprecationWarning)
"""
WARNS = "import warnings\ndef test_it(): warnings.warn('of the code', UserWarning)\n"


def run(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The answer of pytest in a process of its own."""
    environment = {**os.environ, **more}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANG
    )


def beside(folder: Path, plugin: str) -> dict[str, str]:
    """An environment in which `a_plugin` is such a plugin of pytest's."""
    (folder / "a_plugin.py").write_text(plugin, encoding="utf-8")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def with_conftest(folder: Path) -> None:
    """Copies the configuration of these tests, and what it imports, into a folder."""
    for name in ("conftest.py", "budget.py", "compiler.py", "together.py"):
        shutil.copy(ROOT / "tests" / name, folder)


def test_gpu_tests_are_found_without_the_compilers_dependencies(tmp_path: Path) -> None:
    plain = ("-p", "no:hypothesispytest", "-p", "a_plugin", "-m", "gpu", "--collect-only", "-q", "tests")
    done = run("-m", "pytest", *plain, **beside(tmp_path, HIDING))
    assert done.returncode == 0, done.stdout + done.stderr
    found = {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    assert found == {"tests/test_gpu.py"}
    assert re.search(r"^\d+ tests collected|^(\d+)/\1 tests", done.stdout, re.MULTILINE)


@pytest.mark.few(1)
@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_gpu_tests_run_beside_plugins_that_warn(tmp_path: Path, workers: tuple[str, ...]) -> None:
    command = ("-m", "pytest", "-p", "a_plugin", "-m", "gpu", "-q", *workers)
    done = run(*command, "tests/test_tuning.py", **beside(tmp_path, WARNING))
    assert done.returncode in (0, 5), done.stdout + done.stderr  # 5: there is no test for this machine


def test_a_warning_in_a_test_is_an_error(tmp_path: Path) -> None:
    with_conftest(tmp_path)
    (tmp_path / "test_it.py").write_text(WARNS, encoding="utf-8")
    done = run("-m", "pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path))
    assert done.returncode == 1
    assert "UserWarning: of the code" in done.stdout


FULL = """
import pytest
def test_usual(): pass
@pytest.mark.full
def test_of_every_module(): pass
@pytest.mark.gpu
@pytest.mark.full
def test_of_every_module_on_a_gpu(): pass
"""
LEFT_OUT = "\n2 tests marked `full` were left out; FUSEGEN_FULL=1 runs them\n"


@pytest.mark.few(3)
@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
@pytest.mark.parametrize(
    ("full", "chosen", "passed", "left_out"),
    [("", (), 1, True), ("1", (), 3, False), ("", ("-m", "gpu"), 1, False)],
    ids=["usual", "full", "gpu"],
)
def test_tests_marked_full_run_where_they_are_asked_for(
    tmp_path: Path,
    workers: tuple[str, ...],
    full: str,
    chosen: tuple[str, ...],
    passed: int,
    left_out: bool,
) -> None:
    with_conftest(tmp_path)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n  gpu\n  full\n  few(count)\n", encoding="utf-8"
    )
    (tmp_path / "test_gpu.py").write_text(FULL, encoding="utf-8")
    command = ("-m", "pytest", "-q", "--rootdir", str(tmp_path), *workers, *chosen, str(tmp_path))
    done = run(*command, FUSEGEN_FULL=full)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^{passed} passed", done.stdout, re.MULTILINE), done.stdout
    assert (LEFT_OUT in done.stdout) is left_out, done.stdout


FEW = """
import pytest
@pytest.mark.few
@pytest.mark.parametrize("b", "xy")
@pytest.mark.parametrize(("a", "c"), ["pq", "rs", "tu"])
def test_product(a, b, c): print("ran", a, b)
@pytest.mark.few(2)
@pytest.mark.parametrize("a", [0, 1, 2, 3, 4, pytest.param(5, marks=pytest.mark.full)])
def test_table(a): print("ran", a)
@pytest.mark.few(3)
@pytest.mark.parametrize("a", [7, pytest.param(8, marks=pytest.mark.gpu)])
def test_short(a): print("ran", a)
"""
KEPT = ["p x", "r y", "t x", "0", "2", "7", "8"]


@pytest.mark.parametrize(
    ("full", "chosen", "ran"),
    [
        ("", (), KEPT),
        ("", ("-k", "p-q-y or table"), ["0", "2"]),
        ("1", (), ["p x", "p y", "r x", "r y", "t x", "t y", *"01234578"]),
    ],
    ids=["usual", "chosen", "full"],
)
def test_of_tests_marked_few_some_rows_run(
    tmp_path: Path, full: str, chosen: tuple[str, ...], ran: list[str]
) -> None:
    with_conftest(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  gpu\n  full\n  few\n", encoding="utf-8")
    (tmp_path / "test_it.py").write_text(FEW, encoding="utf-8")
    done = run(
        "-m", "pytest", "-q", "-s", "--rootdir", str(tmp_path), *chosen, str(tmp_path), FUSEGEN_FULL=full
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"ran (.*)$", done.stdout, re.MULTILINE) == ran


TOGETHER = """
import pytest
@pytest.fixture
def fresh(): made = []; yield made; assert made != [3], "torn down"
@pytest.mark.together
@pytest.mark.parametrize("a", [0, 1, 2, 3, pytest.param(4, marks=pytest.mark.skip)])
def test_table(a, fresh): fresh.append(a); print("ran", a); assert fresh == [a] != [1], "lost"
@pytest.mark.few(2)
@pytest.mark.together
@pytest.mark.parametrize("a", "pqrst")
def test_some(a): print("ran", a)
@pytest.mark.together
@pytest.mark.parametrize("a", [5, 6])
def test_of_nothing(a): pytest.skip("no device")
def test_alone(): pass
@pytest.fixture(scope="module", params="vw")
def of_all(request): return request.param
@pytest.mark.together
def test_of_a_fixture(of_all): pass
def test_between(of_all): pass
"""


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("chosen", "ran", "counts"),
    [
        ((), [*"0123pr"], "1 failed, 5 passed, 1 skipped"),
        (("-n", "1"), [], "1 failed, 5 passed, 1 skipped"),
        (("-k", "2 or 0"), [*"02"], "1 passed"),
        (("test_it.py::test_table[2]",), ["2"], "1 passed"),
    ],
    ids=["alone", "xdist", "chosen", "id"],
)
def test_rows_marked_together_are_one_test_that_names_all_that_fail(
    tmp_path: Path, chosen: tuple[str, ...], ran: list[str], counts: str
) -> None:
    with_conftest(tmp_path)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n  gpu\n  full\n  few\n  together\n", encoding="utf-8"
    )
    (tmp_path / "test_it.py").write_text(TOGETHER, encoding="utf-8")
    place = [str(tmp_path / chosen[0])] if chosen and "::" in chosen[0] else [*chosen, str(tmp_path)]
    done = run("-m", "pytest", "-q", "-s", "--rootdir", str(tmp_path), *place, FUSEGEN_FULL="")
    assert re.findall(r"ran (\w)$", done.stdout, re.MULTILINE) == ran
    assert re.search(rf"^{counts}(,| in)", done.stdout, re.MULTILINE), done.stdout
    if not chosen:
        command = ("-m", "pytest", "-q", "--collect-only", "--rootdir", str(tmp_path), str(tmp_path))
        assert "7/10 tests collected (3 deselected)" in run(*command, FUSEGEN_FULL="").stdout
    if "failed" in counts:
        # Where CI is set, the summary repeats the texts of failures.
        failures, _, _ = done.stdout.partition("short test summary info")
        named = re.findall(r"^_____ .*::(.*) _____$", failures, re.MULTILINE)
        assert named == ["test_table[1] (call)", "test_table[3] (teardown)"]
        assert "AssertionError: lost" in done.stdout
        assert "AssertionError: torn down" in done.stdout
