"""Cached work: modules, digests, comparisons of references are computed once."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Workshop

from fusegen.compiler import pipeline
from fusegen.core.spec import Spec
from fusegen.language.library import Library
from fusegen.project import build, compile_cache

GATE, TWICE = "generated/gate.py", "generated/twice.py"


@pytest.fixture
def folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, use_cache: None
) -> Path:
    """The folder of results, empty."""
    place = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    return place / "fusegen"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the specs that were compiled, in order."""
    names: list[str] = []

    def spy(spec: Spec, library: Library) -> pipeline.Compiled:
        names.append(spec.name)
        return pipeline.compiled(spec, library)

    monkeypatch.setattr("fusegen.project.build.compiled", spy)
    return names


@pytest.fixture(scope="module")
def first_results(first_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of results of the first build, which nobody changes."""
    place = tmp_path_factory.mktemp("results") / "fusegen"
    place.mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(shutil.copytree(first_build, place.with_name("project")))
        patch.setattr("fusegen.project.compile_cache._folder", lambda: place)
        assert Workshop(Path()).run("build").output == "unchanged: 2 modules\n"
    return place


@pytest.fixture
def remembered(first_results: Path, folder: Path, built: Workshop, compiled: list[str]) -> Workshop:
    """Two specs whose modules are built and known."""
    shutil.copytree(first_results, folder)
    return built


def test_an_unchanged_spec_is_not_compiled_again(remembered: Workshop, compiled: list[str]) -> None:
    for verb in ("build", "check", "list"):
        assert remembered.run(verb).exit_code == 0
    Path(GATE).unlink()
    assert remembered.run("build").output == "new      generated/gate.py\nunchanged: 1 module\n"
    assert compiled == []


DECIDING: dict[str, Callable[[Workshop], object]] = {
    "the spec": lambda shop: shop.spec("gate", "formula: x * 7"),
    "a spec that it may name": lambda shop: shop.spec("other", "formula: x + 1"),
    "the launch table": lambda shop: shop.file("specs/launch.toml", "# none\n"),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("what", DECIDING)
def test_what_decides_a_module_makes_it_new(what: str, remembered: Workshop, compiled: list[str]) -> None:
    DECIDING[what](remembered)
    assert remembered.run("build", "gate").exit_code == 0
    assert compiled == ["gate"]


@pytest.mark.full
def test_a_binding_has_modules_of_its_own(remembered: Workshop, compiled: list[str]) -> None:
    output = remembered.run("build", "--binding", "pybind").output
    assert output.splitlines() == ["changed  generated/_runtime", "unchanged: 2 modules"]
    assert remembered.run("check").exit_code == 0  # by the binding that the manifest says
    assert compiled == ["gate", "twice"]


@pytest.mark.full
def test_another_compiler_makes_modules_new(
    remembered: Workshop, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_cache, "compiler", lambda: "another")
    assert remembered.run("build", "gate").exit_code == 0
    assert compiled == ["gate"]


def test_a_result_is_kept_where_a_room_was_edited_that_decides_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digest(edited: str) -> str:
        for name in ("core/a.py", "models/a.py", "tools/a.py"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(f"x = {int(name == edited)}\n", encoding="utf-8")
        return compile_cache.compiler.__wrapped__()

    monkeypatch.setattr("fusegen.project.compile_cache.resources.files", lambda name: tmp_path)
    before = digest("none")
    assert digest("models/a.py") == digest("tools/a.py") == before
    assert digest("core/a.py") != before


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"text": 1, "remarks": []}', '{"text": "x", "remarks": [1]}']
)
def test_a_result_that_is_none_is_computed_again(
    text: str, remembered: Workshop, folder: Path, compiled: list[str]
) -> None:
    before = Path(GATE).read_text(encoding="utf-8")
    for path in folder.iterdir():
        path.write_text(text, encoding="utf-8")
    assert remembered.run("build", "gate").exit_code == 0
    assert compiled == ["gate"]
    assert Path(GATE).read_text(encoding="utf-8") == before


def test_what_cannot_be_read_beside_a_spec_keeps_nothing(remembered: Workshop, compiled: list[str]) -> None:
    """Else a change of what it hides would not be seen."""
    Path("specs/hidden.yaml").mkdir()
    for _ in range(2):
        assert remembered.run("build", "gate").output == "unchanged: 1 module\n"
    assert compiled == ["gate", "gate"]


@pytest.mark.full
def test_a_spec_that_changes_while_it_is_compiled_is_not_remembered(
    remembered: Workshop, monkeypatch: pytest.MonkeyPatch, compiled: list[str]
) -> None:
    old = "name: gate\nsummary: A test.\nformula: x * 3\n"
    remembered.file("specs/gate.yaml", old)
    load = build.compiled_file

    def edited(spec: Path) -> pipeline.Compiled:
        spec.write_text(old.replace("x * 3", "x * 4"), encoding="utf-8")
        return load(spec)

    with monkeypatch.context() as patch:
        patch.setattr(build, "compiled_file", edited)
        assert remembered.run("build", "gate").exit_code == 0
    Path("specs/gate.yaml").write_text(old, encoding="utf-8")
    assert remembered.run("build", "gate").exit_code == 0
    assert "y = x * 3" in Path(GATE).read_text(encoding="utf-8").replace("·", "*")


def test_two_specs_of_one_name_are_refused_among_many(folder: Path, workshop: Workshop) -> None:
    for k in range(4):
        workshop.spec(f"f{k}", f"formula: x * {k + 2}")
    workshop.file("other/f0.yaml", "name: f0\nsummary: A test.\nformula: x + 1\n")
    result = workshop.run("build", "f0", "f1", "f2", "f3", "other/f0.yaml")
    assert (result.exit_code, "is the name of specs/f0.yaml, too" in result.output) == (2, True)
    assert "generated" not in {path.split("/")[0] for path in workshop.files()}


def shared(folder: Path) -> None:
    folder.chmod(0o777)


def linked(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


def a_file(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.write_text("", encoding="utf-8")


@pytest.mark.few(1)
@pytest.mark.parametrize("spoil", [shared, linked, a_file], ids=lambda spoil: spoil.__name__)
def test_a_folder_that_is_not_only_the_users_is_not_used(
    spoil: Callable[[Path], None], remembered: Workshop, folder: Path, compiled: list[str]
) -> None:
    spoil(folder)
    assert remembered.run("build", "gate").output == "unchanged: 1 module\n"
    assert compiled == ["gate"]


def test_nothing_is_remembered_without_a_home(
    folder: Path, built: Workshop, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    for _ in range(2):
        assert built.run("build", "gate").output == "unchanged: 1 module\n"
    assert compiled == ["gate", "gate"]


def test_a_mistake_is_told_every_time(remembered: Workshop) -> None:
    remembered.spec("gate", "formula: x + missing")
    first, second = (remembered.run("build") for _ in range(2))
    assert (first.exit_code, first.output) == (second.exit_code, second.output)
    assert (first.exit_code, "missing" in first.output) == (2, True)


@pytest.mark.full
def test_a_remark_is_told_every_time(remembered: Workshop) -> None:
    remembered.spec("gate", "formula: x ** 20 / (x ** 20 + 1 + abs(x))")
    first, second = (remembered.run("build").stderr for _ in range(2))
    assert first == second
    assert first.startswith("gate: the gradient ")


@pytest.mark.full
def test_all_processors_make_what_one_makes(folder: Path, workshop: Workshop) -> None:
    names = [f"f{k}" for k in range(6)]
    for k, name in enumerate(names):
        workshop.spec(name, f"formula: x * {k + 2}")
    assert workshop.run("build").exit_code == 0
    together = workshop.files()
    for name in names:
        Path(f"generated/{name}.py").unlink()
    for path in folder.iterdir():
        path.unlink()
    for name in names:
        assert workshop.run("build", name).exit_code == 0
    assert workshop.files() == together


def test_results_that_nobody_asks_for_are_removed(
    remembered: Workshop, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = folder / "old", folder / "new"
    for path, days in ((old, compile_cache.DAYS + 1), (new, compile_cache.DAYS - 1)):
        path.write_text("{}", encoding="utf-8")
        then = path.stat().st_mtime - days * 24 * 3600
        os.utime(path, (then, then))
    (folder / compile_cache.SWEPT).unlink()
    remembered.build("gate", "formula: x * 9")
    assert (old.exists(), new.exists()) == (False, True)
