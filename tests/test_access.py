"""Files that the system refuses: a sentence, exit status 2, and nothing done before."""

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Workshop

from fusegen.core import access
from fusegen.errors import FusegenError
from fusegen.evidence.bench import session
from fusegen.evidence.bench.measurements import Row


@pytest.fixture
def gated(workshop: Workshop) -> Workshop:
    """A workshop with a spec and its module."""
    workshop.build("gate", "formula: x + 1")
    return workshop


FILE = "it is a file, where a folder is needed"
COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {  # what is typed beside a file `taken`, and the answer
    "build": (
        ("build", "--output", "taken"),
        f"taken: this cannot be used: {FILE}\n  hint: name a folder\n",
    ),
    "build below": (
        ("build", "--output", "taken/deep/er"),
        f"taken: this cannot be used: {FILE}\n  hint: name a folder\n",
    ),
    "check": (
        ("check", "--output", "taken"),
        f"taken: this cannot be used: {FILE}\n  hint: name a folder\n",
    ),
    "list": (("list", "--output", "taken"), f"taken: this cannot be used: {FILE}\n  hint: name a folder\n"),
    "a long name": (
        ("build", "--output", "x" * 300),
        f"{'x' * 300}/MANIFEST.toml: this cannot be read: file name too long\n"
        "  hint: choose a shorter name\n",
    ),
    "a module that is a folder": (
        ("build", "--output", "held"),
        "held/gate.py: this cannot be read: is a directory\n"
        "  hint: this is a folder; give the name of a file\n",
    ),
    "explain": (
        ("explain", "gate", "--plot", "taken/picture.svg"),
        f"taken: this cannot be used: {FILE}\n  hint: name a folder\n",
    ),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_what_the_system_refuses_is_a_sentence(workshop: Workshop, case: str) -> None:
    workshop.spec("gate", "formula: x + 1")
    workshop.file("taken", "mine\n")
    (workshop.folder / "held" / "gate.py").mkdir(parents=True)
    command, answer = COMMANDS[case]
    before = workshop.files()
    assert workshop.refused(*command) == answer
    assert workshop.files() == before


ANSWERS = {  # of the system, with the reason and the remedy that are shown
    errno.EACCES: ("permission denied", "change its permissions, or choose another place"),
    errno.EROFS: ("read-only file system", "the file system is read-only; choose another place"),
    errno.ENOSPC: ("no space left on device", "free some space, or choose another place"),
    errno.EIO: ("input/output error", "choose another place"),
}


@pytest.mark.parametrize("number", ANSWERS, ids=os.strerror)
def test_a_folder_that_cannot_be_written_is_a_sentence(
    gated: Workshop, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "/somewhere/temporary")

    gated.spec("gate", "formula: x + 2")
    before = gated.files()
    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    result = gated.run("build")
    why, remedy = ANSWERS[number]
    sentence = f"generated/gate.py: this cannot be written: {why}\n  hint: {remedy}\n"
    assert (result.exit_code, result.output) == (2, sentence)
    assert gated.files() == before


OPTIONS = {  # of `bench`, with a bad path each
    "--json": ("taken/now.json", "taken"),
    "--csv": ("taken/now.csv", "taken"),
    "--markdown": ("taken/now.md", "taken"),
    "--history": ("taken/runs", "taken"),
    "--plot": ("taken/pictures", "taken"),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_bench_checks_its_paths_before_it_measures(
    gated: Workshop, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    measured: list[object] = []

    def spy(*given: object) -> Iterator[tuple[Row, ...]]:
        measured.append(given)
        yield ()

    monkeypatch.setattr(session, "measured", spy)
    gated.file("taken", "mine\n")
    before = gated.files()
    path, place = OPTIONS[option]
    result = gated.run("bench", "gate", "--device", "cpu", option, path)
    sentence = f"{place}: this cannot be used: {FILE}\n  hint: name a folder\n"
    assert (result.exit_code, result.output) == (2, sentence)
    assert measured == []
    assert gated.files() == before


def test_a_path_that_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("as it was", encoding="utf-8")
    stamp = (tmp_path / "old").stat().st_mtime_ns
    access.require_writable(tmp_path / "old", tmp_path / "new" / "deep", Path("/dev/null"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]
    assert (tmp_path / "old").stat().st_mtime_ns == stamp


def test_a_folder_is_not_a_file_to_write(tmp_path: Path) -> None:
    with pytest.raises(FusegenError) as caught:
        access.require_writable(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: this cannot be written: is a directory\n"
        "  hint: this is a folder; give the name of a file"
    )
