"""Certified is the result of a build here: no ready-made library, no edited file, no other flags."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from conftest import Workshop

from fusegen.core.term import Program
from fusegen.evidence.certify import certification, enclosures, host
from fusegen.evidence.certify.evaluator import Evaluator
from fusegen.project.library_folder import VARIABLE
from fusegen.runtime import prebuilt


@pytest.fixture
def halved(workshop: Workshop) -> Workshop:
    """A workshop with a module, whose kernels are not built."""
    workshop.build("halved", "formula: x / 2\ndtypes: [float16]")
    return workshop


@pytest.mark.parametrize("before", ["/opt/libraries", None])
def test_certify_looks_into_no_folder_of_libraries(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if before:
        monkeypatch.setenv(VARIABLE, before)
    with host.without_libraries():
        assert [*prebuilt.folders()] == []
    assert os.environ.get(VARIABLE) == before
    assert (Path("/opt/libraries") in prebuilt.folders()) is (before is not None)


def test_no_library_is_loaded_while_modules_are_certified(
    halved: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[Path]] = []
    monkeypatch.setattr(certification, "prepared", lambda *_: seen.append([*prebuilt.folders()]))
    monkeypatch.setattr(certification, "_certified", lambda *_: iter(()))
    monkeypatch.setenv(VARIABLE, "/opt/libraries")
    assert halved.run("certify", "halved", "--device", "cpu").exit_code == 0
    assert seen == [[]]


def edited(path: Path) -> None:
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")


CHANGED: dict[str, tuple[str, Callable[[Path], None]]] = {
    "the module": ("generated/halved.py", edited),
    "no module": ("generated/halved.py", Path.unlink),
    "a header of the runtime": ("generated/_runtime/include/cpu/loops.h", edited),
    "the flags of the runtime": ("generated/_runtime/flags.py", edited),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_changed_file_is_neither_certified_nor_current(halved: Workshop, what: str) -> None:
    path, change = CHANGED[what]
    change(Path(path))
    certified, checked = halved.run("certify", "halved", "--device", "cpu"), halved.run("check")
    assert (certified.exit_code, certified.output) == (
        2,
        "generated/halved.py: the module of halved is not what its spec says\n"
        "  hint: run 'python -m fusegen build halved' first\n",
    )
    assert (checked.exit_code, checked.stderr) == (
        1,
        "1 file differs; run 'python -m fusegen build' (and 'schema'), read the diff, commit it\n",
    )


def test_a_killed_process_is_reported_as_killed(halved: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> Iterator[object]:
        raise BrokenProcessPool("A process in the process pool was terminated abruptly")

    monkeypatch.setattr(certification, "prepared", lambda *_: None)
    monkeypatch.setattr(Evaluator, "evidence", killed)
    assert halved.refused("certify", "halved", "--device", "cpu") == (
        "halved: halved is not certified: a process that computes exact values was killed, as for its "
        "memory\n  hint: free memory, then run the same command with --resume\n"
    )
    assert not Path("generated/halved.certificate.txt").exists()


def test_a_pool_with_a_killed_process_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pool:
        def map(self, *_: object) -> Iterator[object]:
            raise BrokenProcessPool

    class Processes:
        cleared = False

        def __call__(self, count: int) -> Pool:
            return Pool()

        def cache_clear(self) -> None:
            self.cleared = True

    monkeypatch.setattr(enclosures, "_processes", processes := Processes())
    with pytest.raises(BrokenProcessPool):
        list(enclosures._computed(Program((), (), (), ()), {}, []))
    assert processes.cleared


FLAGS = {"": {}, " with -O1": {"CXX": "c++ -O1"}, " with -lineinfo": {"NVCC_APPEND_FLAGS": "-lineinfo"}}


@pytest.mark.parametrize("shown", FLAGS)
def test_a_certificate_names_the_flags_in_force(monkeypatch: pytest.MonkeyPatch, shown: str) -> None:
    for name in ("CXX", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in FLAGS[shown].items():
        monkeypatch.setenv(name, value)
    compiler = host.machine("cpu").compiler
    assert compiler.startswith("c++ ")
    assert compiler.partition(" with")[2] == shown.removeprefix(" with")
