"""The compiler of the test run: what it changes of a build, and that this changes no code."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import compiler
import pytest
from budget import FULL

from fusegen.runtime import direct
from fusegen.runtime.library_names import definition

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")

INCLUDED = compiler.included
TEXT = "#include <vector>\nint last(const std::vector<int>& v) { return v.empty() ? 0 : v.back(); }\n"
OWN, COMMITTED, OTHER = (definition("some", name) for name in ("of_a_test", "hardsigmoid", "hardswish"))


@pytest.fixture(autouse=True)
def light(extensions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers that take little time, and a compiler that is no script."""
    monkeypatch.setenv("PATH", compiler.path_without(extensions))
    monkeypatch.setattr(compiler, "included", lambda source: "#include <vector>\n#include <string>\n")


def arguments(folder: Path, text: str, *more: str) -> list[str]:
    """The arguments of the compiler in a build of a text."""
    source = folder / "main.cpp"
    source.write_text(text, encoding="utf-8")
    target = ["-c", str(source), "-o", str(folder / "main.o")]
    return ["-MMD", "-MF", str(folder / "main.o.d"), "-DTORCH_EXTENSION_NAME=it", *more, *target]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("start", "optimised", "level"),
    [
        (OWN, "", "-O0"),
        (OWN, "1", "-O3"),
        (COMMITTED, "", "-O3"),
        (OTHER, "", "-O3" if FULL else "-O0"),
        ("", "", "-O3" if FULL else "-O0"),
    ],
    ids=["own", "own in a test of numerics", "committed", "another", "without a name"],
)
def test_most_modules_are_optimised_less(
    start: str, optimised: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if optimised:
        monkeypatch.setenv(compiler.LEVEL, optimised)
    given = arguments(tmp_path, start, "-O3", "-Wall")
    include, header, *rest = compiler.adapted(tmp_path, given)
    assert (include, Path(header).parent) == ("-include", tmp_path)
    assert rest == [level if argument == "-O3" else argument for argument in given]


@pytest.mark.parametrize("given", [["-v"], ["-c", "other.cpp"], ["-E", "/somewhere/main.cpp"], []])
def test_what_is_no_build_of_a_module_stays_as_it_is(given: list[str], tmp_path: Path) -> None:
    assert compiler.adapted(tmp_path, given) == given
    assert not [*tmp_path.iterdir()]


@pytest.mark.full
def test_precompiled_headers_change_no_code_and_objects_are_made_once(tmp_path: Path) -> None:
    script, build = str(compiler.script(tmp_path)), tmp_path / "build"
    (build / "system").mkdir(parents=True)
    given = arguments(
        build, COMMITTED + '#include "system/of_build.h"\n' + TEXT, "-O3", "-std=c++20", "-I."
    )
    found = []
    for beside, command in (("", "c++"), ("", script), ("", script), ("int more;\n", script)):
        (build / "system/of_build.h").write_text(beside, encoding="utf-8")
        subprocess.run([command, *given], check=True, cwd=build)
        found.append((build / "main.o").read_bytes())
    assert found[0] == found[1] == found[2] != found[3]
    assert [len([*tmp_path.glob(files)]) for files in ("*.gch", "objects/*.o")] == [1, 2]
    wrong = arguments(build, COMMITTED + "no_such_type x;", "-O3")
    done = subprocess.run([script, *wrong], capture_output=True, text=True)
    assert (done.returncode, "no_such_type" in done.stderr) == (1, True)


def test_the_runtime_builds_by_calls_that_are_adapted(
    extensions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its calls for a module would take seconds if the script no longer knew it."""
    calls, run = [], subprocess.run

    def recorded(command: list[str], **ways: Any) -> Any:
        calls.append(command)
        return run(["true"], **ways)

    monkeypatch.setattr("fusegen.runtime.direct.started.run", recorded)
    recipe = {"cpp_sources": ["", OWN, OWN], "headers": {}, "extra_cflags": ["-O3", "-Wall"]}
    recipe["files"] = [Path(name).stem for name in compiler.SOURCES]
    with pytest.raises(FileNotFoundError, match=r"made\.so"):
        direct.build(recipe, OWN, direct.Folder(str(tmp_path), ["c++"], 1))
    *compiled, _, _ = calls
    assert [compiler.source_of(call) for call in compiled] == [
        str(tmp_path / name) for name in compiler.SOURCES
    ]
    for call in compiled:
        levels = [flag for flag in compiler.adapted(tmp_path, call) if re.fullmatch("-O.", flag)]
        assert {*levels} == {"-O0"}


def test_headers_are_compiled_once_for_the_same_flags(tmp_path: Path) -> None:
    made = []
    for flags in (("-O1",), ("-O1", "-DTORCH_EXTENSION_NAME=other"), ("-O2",)):
        compiler.adapted(tmp_path, arguments(tmp_path, TEXT, *flags))
        made.append({path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.gch")})
    assert made[0] == made[1]
    assert [len(each) for each in made] == [1, 1, 2]


def test_headers_that_few_builds_have_are_not_compiled_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "included", INCLUDED)
    monkeypatch.delenv("FUSEGEN_FULL", raising=False)
    given = arguments(tmp_path, compiler.EXTENSION + OWN, "-O2")
    assert compiler.adapted(tmp_path, given) == [f"-I{compiler.PART}", *given]
    monkeypatch.setenv(compiler.LEVEL, "1")
    assert compiler.adapted(tmp_path, given) == given


def test_headers_that_do_not_compile_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "included", lambda source: "#include <no_such_header>\n")
    given = arguments(tmp_path, TEXT, "-O2")
    assert compiler.adapted(tmp_path, given) == given


def test_a_library_is_made_once_of_the_same_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "of_its_own"))
    flags = ["-shared", "-fPIC"]
    first = compiler.library(TEXT, flags)
    time = first.stat().st_mtime_ns
    assert compiler.library(TEXT, flags) == first
    assert first.stat().st_mtime_ns == time
    assert compiler.library(TEXT + "int other;\n", flags) != first
    with pytest.raises(AssertionError, match="no_such_type"):
        compiler.library("no_such_type x;", flags)
