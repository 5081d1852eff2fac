"""The tests for a GPU are found beside other plugins, and where the compiler's dependencies are missing."""

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


def test_gpu_tests_are_found_without_the_compilers_dependencies(tmp_path: Path) -> None:
    plain = ("-p", "no:hypothesispytest", "-p", "a_plugin", "-m", "gpu", "--collect-only", "-q", "tests")
    done = run("-m", "pytest", *plain, **beside(tmp_path, HIDING))
    assert done.returncode == 0, done.stdout + done.stderr
    found = {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    assert found == {"tests/test_gpu.py"}
    assert re.search(r"^\d+ tests collected|^(\d+)/\1 tests", done.stdout, re.MULTILINE)


@pytest.mark.full
@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_gpu_tests_run_beside_plugins_that_warn(tmp_path: Path, workers: tuple[str, ...]) -> None:
    command = ("-m", "pytest", "-p", "a_plugin", "-m", "gpu", "-q", *workers)
    done = run(*command, "tests/test_tuning.py", **beside(tmp_path, WARNING))
    assert done.returncode in (0, 5), done.stdout + done.stderr  # 5: there is no test for this machine


BARE = """
import pytest
@pytest.fixture(scope="session", autouse=True)
def extensions(): pass
results = small_regions = no_cache = extensions
"""  # tests that build nothing, and need no torch
INI = "[pytest]\nmarkers =\n  gpu\n  full\n  few\n  together\n"
TESTS = {
    "test_gpu.py": """
import pytest
def test_usual(): pass
@pytest.mark.full
def test_of_every_module(): pass
@pytest.mark.gpu
@pytest.mark.full
def test_of_every_module_on_a_gpu(): pass
""",
    "test_it.py": """
import warnings
import pytest
def test_warns(): warnings.warn("of the code", UserWarning)
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
@pytest.fixture
def fresh(): made = []; yield made; assert made != [13], "torn down"
@pytest.mark.together
@pytest.mark.parametrize("a", [10, 11, 12, 13, pytest.param(14, marks=pytest.mark.skip)])
def test_rows(a, fresh): fresh.append(a); print("ran", a); assert fresh == [a] != [11], "lost"
@pytest.mark.few(2)
@pytest.mark.together
@pytest.mark.parametrize("a", "hijkl")
def test_some(a): print("ran", a)
@pytest.mark.together
@pytest.mark.parametrize("a", [5, 6])
def test_of_nothing(a): pytest.skip("no device")
@pytest.fixture(scope="module", params="vw")
def of_all(request): return request.param
@pytest.mark.together
def test_of_a_fixture(of_all): pass
def test_between(of_all): pass
""",
}
USUAL = ["p x", "r y", "t x", "0", "2", "7", "8", "10", "11", "12", "13", "h", "j"]
EVERY = ["p x", "p y", "r x", "r y", "t x", "t y", *"01234578", "10", "11", "12", "13", *"hijkl"]
LEFT_OUT = "\n12 tests marked `full` were left out; FUSEGEN_FULL=1 runs them\n"
ROW = ("inside/test_it.py::test_rows[12]",)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some tests with the configuration of these, and what it imports."""
    place = tmp_path_factory.mktemp("tests")
    for name in ("conftest.py", "budget.py", "compiler.py", "together.py"):
        shutil.copy(ROOT / "tests" / name, place)
    (place / "pytest.ini").write_text(INI, encoding="utf-8")
    (place / "inside").mkdir()
    for name, text in (TESTS | {"conftest.py": BARE}).items():
        (place / "inside" / name).write_text(text, encoding="utf-8")
    return place


def answer(folder: Path, *chosen: str, full: str = "") -> str:
    """The text that pytest prints of these tests."""
    command = ("-m", "pytest", "-q", "-s", "--rootdir", str(folder))
    place = [str(folder / chosen[0])] if chosen and "::" in chosen[0] else [*chosen, str(folder)]
    return run(*command, *place, FUSEGEN_FULL=full).stdout


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("chosen", "full", "ran", "counts"),
    [
        ((), "", USUAL, "2 failed, 12 passed, 1 skipped"),
        (("-n", "1"), "", [], "2 failed, 12 passed, 1 skipped"),
        ((), "1", EVERY, "2 failed, 21 passed, 1 skipped"),
        (("-m", "gpu"), "", ["8"], "2 passed"),
        (("-k", "p-q-y or table or 12 or 10"), "", ["0", "2", "10", "12"], "3 passed"),
        pytest.param(ROW, "", ["12"], "1 passed", marks=pytest.mark.full),
    ],
    ids=["usual", "xdist", "full", "gpu", "chosen", "id"],
)
def test_marks_choose_what_runs_and_rows_together_are_one_test(
    folder: Path, chosen: tuple[str, ...], full: str, ran: list[str], counts: str
) -> None:
    told = answer(folder, *chosen, full=full)
    assert re.findall(r"ran (.*)$", told, re.MULTILINE) == ran
    assert re.search(rf"^{counts}(,| in)", told, re.MULTILINE), told
    assert (LEFT_OUT in told) is (not full and chosen[:1] in ((), ("-n",), ("-k",))), told
    if "failed" in counts:
        # Where CI is set, the summary repeats the texts of failures.
        failures, _, _ = told.partition("short test summary info")
        named = re.findall(r"^_____ .*::(.*) _____$", failures, re.MULTILINE)
        assert named == ["test_rows[11] (call)", "test_rows[13] (teardown)"]
        for what in ("AssertionError: lost", "AssertionError: torn down", "UserWarning: of the code"):
            assert what in told


def test_the_count_of_what_is_collected_is_that_of_tests(folder: Path) -> None:
    assert "15/27 tests collected (12 deselected)" in answer(folder, "--collect-only")
