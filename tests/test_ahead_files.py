"""Libraries compiled ahead of time, as files: those that are kept, replaced or refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Workshop

from fusegen.errors import FusegenError
from fusegen.project import toolkit
from fusegen.runtime.library_names import encoded
from fusegen.tools import compile_ahead
from fusegen.tools.compile_ahead.shared_library import Library


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The paths of the libraries that are compiled, in a way that takes no time."""
    made: list[Path] = []

    def compiled(of: Library) -> bytes:
        made.append(of.path)
        return b"a library" + (encoded(of.namespace, of.module) if of.namespace else b"")

    monkeypatch.setattr(compile_ahead, "compiled", compiled)
    return made


@pytest.mark.full
def test_modules_of_one_name_keep_each_others_libraries(workshop: Workshop, faked: list[Path]) -> None:
    for folder, formula in (("a", "x * x"), ("b", "x * x * x")):
        workshop.file(f"specs/{folder}/gate.yaml", f"name: gate\nsummary: A test.\nformula: {formula}\n")
    assert workshop.run("build").exit_code == 0
    lines = workshop.run("compile", "--device", "cpu").output.splitlines()
    assert {line.split()[0] for line in lines} == {"new"}
    assert len(lines) == len(set(lines)) == len(set(faked)) == len(faked) >= 4
    assert workshop.run("compile", "--device", "cpu").output == f"unchanged: {len(lines)} libraries\n"
    old = next(path for path in faked if "_forward_cpu_" in path.name)
    old = old.with_name(f"{old.stem.rpartition('_')[0]}_{0:016x}.so")  # that no module loads
    old.touch()
    workshop.file("specs/a/gate.yaml", "name: gate\nsummary: A test.\nformula: x * x + x\n")
    assert workshop.run("build").exit_code == 0
    before, made = set(old.parent.glob("*.so")), len(faked)
    assert workshop.run("compile", "a/gate", "--device", "cpu").exit_code == 0
    assert set(old.parent.glob("*.so")) >= set(faked[made:])
    gone = before - set(old.parent.glob("*.so"))
    assert old in gone
    assert len(gone) == 1 + len(faked[made:])  # those of the module that changed, and of none
    assert workshop.run("compile", "b/gate", "--device", "cpu").output.startswith("unchanged: ")


def test_a_library_is_compiled_once_and_only_unwanted_ones_go(tmp_path: Path, faked: list[Path]) -> None:
    names = ("space_forward_cpu_AVX2_01.so", "space_forward_cpu_AVX2_02.so", "space_forward_cpu_AVX2_00.so")
    first, second, old = (tmp_path / name for name in names)
    old.touch()
    wanted = [Library("gate", path, "forward", "cpu", {}) for path in (first, second, first)]
    assert list(compile_ahead.compile_all(wanted)) == [("new", first), ("removed", old), ("new", second)]
    assert list(compile_ahead.compile_all(wanted)) == [("unchanged", first), ("unchanged", second)]
    assert faked == [first, second]


DAMAGES: dict[str, Callable[[Path], object]] = {
    "damaged": lambda path: path.write_bytes(b"a librarx"),
    "deleted": Path.unlink,
    "without its digest": lambda path: path.with_suffix(".sum").unlink(),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_library_that_is_not_whole_is_compiled_again(tmp_path: Path, faked: list[Path], how: str) -> None:
    wanted = [Library("gate", tmp_path / "space_forward_cpu_AVX2_01.so", "forward", "cpu", {})]
    assert [kind for kind, _ in compile_ahead.compile_all(wanted)] == ["new"]
    log = wanted[0].path.with_suffix(".log")
    log.touch()  # of an earlier failure
    DAMAGES[how](wanted[0].path)
    assert [kind for kind, _ in compile_ahead.compile_all(wanted)] == ["new"]
    assert (wanted[0].path.read_bytes(), log.exists()) == (b"a library", False)
    assert [kind for kind, _ in compile_ahead.compile_all(wanted)] == ["unchanged"]


@pytest.mark.parametrize("folder", ["lib64", "lib", "lib/x86_64-linux-gnu", "targets/x86_64-linux/lib"])
def test_the_runtime_of_cuda_is_found(tmp_path: Path, folder: str) -> None:
    place = tmp_path / folder
    place.mkdir(parents=True)
    for name in ("libcudart.so.13.0.96", "libcudart.so.13", "libcudart_static.a"):
        (place / name).touch()
    assert toolkit.cudart(tmp_path) == place / "libcudart.so.13"


def test_a_toolkit_without_the_runtime_is_refused_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faked: list[Path]
) -> None:
    monkeypatch.setattr(toolkit, "home", lambda: tmp_path)
    wanted = [
        Library("gate", tmp_path / f"space_forward_{d}_01.so", "forward", d, {}) for d in ("cpu", "cuda")
    ]
    with pytest.raises(FusegenError) as error:
        list(compile_ahead.compile_all(wanted))
    assert str(error.value) == (
        f"{tmp_path}: the CUDA toolkit has no libcudart in lib64, lib, lib/*-linux-gnu, targets/*/lib\n"
        "  hint: install the CUDA runtime's library, or set CUDA_HOME to a whole toolkit"
    )
    assert faked == []


@pytest.mark.parametrize("variable", ["CXX", "PYTORCH_NVCC"])
def test_a_compiler_that_is_no_command_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, faked: list[Path], variable: str
) -> None:
    monkeypatch.setenv(variable, "bad 'quote")
    monkeypatch.setattr(toolkit, "home", lambda: tmp_path)
    with pytest.raises(FusegenError) as error:
        list(compile_ahead.compile_all([Library("gate", tmp_path / "a_01.so", "forward", "cuda", {})]))
    sentence = (
        f'{variable}: "bad \'quote" is no command: no closing quotation\n  hint: write it as for a shell'
    )
    assert (str(error.value), faked) == (sentence, [])


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_compiled(
    tmp_path: Path, faked: list[Path]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FusegenError, match="it is a file, where a folder is needed"):
        list(
            compile_ahead.compile_all(
                [Library("gate", tmp_path / "file" / "a_01.so", "forward", "cpu", {})]
            )
        )
    assert faked == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--device", "cpu", "--arch", "9.0"), "--device cpu takes no --arch"),
        (("--device", "cuda", "--isa", "AVX2"), "--device cuda takes no --isa"),
    ],
)
def test_targets_of_another_device_are_refused(
    workshop: Workshop, words: tuple[str, ...], message: str
) -> None:
    result = workshop.run("compile", *words)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, f"Error: {message}")
