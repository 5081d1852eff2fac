"""`clean`: which libraries are removed, which stay, and which folders are refused."""

import fcntl
import os
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Workshop
from processes import script

from fusegen.project import library_folder, loader, outputs, stale
from fusegen.project.stale import Loaded, loaded
from fusegen.runtime import targets

OLD, OTHER = "0123456789abcdef", "fedcba9876543210"


@pytest.fixture
def folder(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of builds, beside a project with a module `cleaned`."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(workshop.folder / "made"))
    workshop.build("cleaned", "formula: x * 3")
    place = workshop.folder / "made/fusegen"
    place.mkdir(parents=True)
    place.chmod(0o755)
    return place


def kernels() -> dict[str, list[str]]:
    """The digests of the libraries of `cleaned` that are built here, by namespace, kernel and device."""
    found = {of: sorted(contents) for of, contents in loads().built.items()}
    assert {len(contents) for contents in found.values()} == {5}  # the binding, and four dtypes
    return found


def loads() -> Loaded:
    return loaded(outputs.opened(Path("generated"), Path("specs")))


def library(folder: Path, stem: str, size: int = 10) -> set[Path]:
    """A library as a build keeps it, of three files."""
    files = {folder / f"{stem}{suffix}" for suffix in (".so", ".sum", ".lock")}
    for path in files:
        path.write_bytes(bytes(size))
    return files


def left(folder: Path) -> set[Path]:
    return set(folder.iterdir())


def test_the_library_of_a_module_is_the_one_that_it_builds(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    class Asked(Exception):
        """The library that a build would make."""

    def asked(wanted: Any, *_: object) -> None:
        raise Asked(wanted.library)

    module = loader.imported(Path("generated/cleaned.py"))
    runtime = type(module.KERNELS).__module__.rpartition(".")[0]
    monkeypatch.setattr(f"{runtime}.build.build_library", asked)
    with pytest.raises(Asked) as found:
        module.cleaned(torch.ones(2))
    path = Path(str(found.value))
    match = library_folder.KERNEL.fullmatch(path.stem)
    assert path.parent == folder
    assert match
    assert match["content"] in kernels()[match["of"]]
    assert match["of"].endswith("_forward_cpu")


@pytest.mark.full
def test_the_library_of_a_convolution_is_known(workshop: Workshop) -> None:
    workshop.build("thin", "layers: [conv: 'Conv2d(3, 4, 3)']\nchain: [relu]")
    ahead = loaded(outputs.opened(Path("generated"), Path("specs"))).ahead
    [of] = [name for name in ahead if name.endswith("_convolved_cuda")]
    [content] = ahead[of]
    for pattern, stem in (
        (library_folder.KERNEL, f"{of}_{content}"),
        (library_folder.AHEAD, f"{of}_90_{content}"),
    ):
        found = pattern.fullmatch(stem)
        assert found is not None
        assert (found["of"], found["content"]) == (of, content)


def test_only_outdated_libraries_of_modules_here_are_removed(folder: Path, workshop: Workshop) -> None:
    of = "_".join(next(iter(kernels())).split("_")[:-2])
    now = set.union(
        *(library(folder, f"{of}_forward_cpu_{each}") for each in kernels()[f"{of}_forward_cpu"])
    )
    old = library(folder, f"{of}_forward_cpu_{OLD}")
    others = library(folder, f"fusegen_other_0a1b2c_forward_cpu_{OLD}")
    others |= library(folder, f"interval_filter_cpu_{OLD}")
    strange = {workshop.file(f"made/fusegen/{name}", "") for name in ("notes.so", "notes.txt", f"{of}.so")}
    result = workshop.run("clean")
    assert result.stdout == (
        f"removed  1 library from {folder}, 30 bytes freed\n"
        "2 libraries of other modules stay; --all removes them, too\n"
    )
    assert left(folder) == now | others | strange
    assert not old & left(folder)
    result = workshop.run("clean", "--all")
    assert result.stdout == f"removed  7 libraries from {folder}, 210 bytes freed\n"
    assert left(folder) == strange


def test_libraries_for_cuda_stay_where_there_is_no_gpu(
    folder: Path, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder may be that of several machines."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    of = "_".join(next(iter(kernels())).split("_")[:-2])
    files = library(folder, f"{of}_forward_cuda_{OLD}")
    workshop.run("clean")
    assert left(folder) == files
    assert targets.here("cuda") == ()


def test_verbose_prints_each_file(folder: Path, workshop: Workshop) -> None:
    files = library(folder, f"interval_filter_sm_90_{OLD}")
    told = workshop.run("clean", "--all", "-v").stderr.splitlines()[:-1]
    assert sorted(told) == sorted(f"removed  {path}" for path in files)


def test_a_library_that_is_being_built_stays(folder: Path, workshop: Workshop) -> None:
    """Locks are those of processes, so another one holds it."""
    files = library(folder, f"fusegen_other_0a1b2c_forward_cpu_{OLD}")
    [lock] = [path for path in files if path.suffix == ".lock"]
    read, write = os.pipe()
    ended, end = os.pipe()
    child = os.fork()
    if child == 0:
        with lock.open("ab") as held:
            fcntl.lockf(held, fcntl.LOCK_EX)
            os.write(write, b"1")
            os.close(end)
            os.read(ended, 1)
        os._exit(0)
    os.read(read, 1)
    workshop.run("clean", "--all")
    assert left(folder) == files
    for descriptor in (end, ended, read, write):
        os.close(descriptor)
    os.waitpid(child, 0)
    workshop.run("clean", "--all")
    assert left(folder) == set()


def test_links_are_neither_followed_nor_removed(folder: Path, workshop: Workshop) -> None:
    mine = workshop.file("mine/precious.so", "x")
    (folder / f"fusegen_other_0a1b2c_forward_cpu_{OLD}.so").symlink_to(mine)
    (folder / "tmpabcd1234").symlink_to(mine.parent)
    os.utime(folder / "tmpabcd1234", (0, 0), follow_symlinks=False)
    inside = folder / "tmpabcd5678"
    inside.mkdir()
    (inside / "link").symlink_to(mine.parent)
    os.utime(inside, (0, 0))
    workshop.run("clean", "--all")
    assert mine.read_text(encoding="utf-8") == "x"
    assert {path.name for path in left(folder)} == {
        f"fusegen_other_0a1b2c_forward_cpu_{OLD}.so",
        "tmpabcd1234",
    }


@pytest.mark.parametrize(
    ("age", "stays"), [(library_folder.A_DAY - 60, True), (library_folder.A_DAY + 60, False)]
)
def test_folders_of_builds_that_were_killed_are_removed_after_a_day(
    folder: Path, workshop: Workshop, age: int, stays: bool
) -> None:
    inside = folder / "tmpabcd5678"
    inside.mkdir()
    script(inside, "main.cpp", "")
    os.utime(inside, (time.time() - age, time.time() - age))
    workshop.run("clean")
    assert inside.exists() is stays


NOT_OWN = (
    "this folder is not yours alone, so nothing in it is removed\n"
    "  hint: make it yours (chown, chmod go-w; no link), or set TORCH_EXTENSIONS_DIR to another folder\n"
)


def _open(folder: Path) -> None:
    folder.chmod(0o775)


def _linked(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")


def _strangers(folder: Path) -> None:
    os.chown(folder, 12345, 12345)


@pytest.mark.parametrize(
    "spoil",
    [
        _open,
        _linked,
        pytest.param(_strangers, marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root")),
    ],
)
@pytest.mark.parametrize("place", ["made/fusegen", "generated/_libraries"])
def test_a_folder_that_is_not_its_own_is_refused(
    folder: Path, workshop: Workshop, spoil: object, place: str
) -> None:
    path = workshop.folder / place
    path.mkdir(exist_ok=True)
    files = {each.name for each in library(path, f"fusegen_other_0a1b2c_forward_cpu_{OLD}")}
    assert callable(spoil)
    spoil(path)
    result = workshop.run("clean", "--all")
    shown = path if place.startswith("made") else Path(place)
    assert (result.exit_code, result.stderr) == (2, f"{shown}: {NOT_OWN}")
    assert {each.name for each in left(path)} == files


def test_of_libraries_what_compile_would_replace_is_removed(folder: Path, workshop: Workshop) -> None:
    of, [content] = next(iter(loads().ahead.items()))
    place = Path("generated/_libraries")
    place.mkdir()
    stay = library(place, f"{of}_AVX2_{content}") | library(
        place, f"fusegen_other_0a1b2c_forward_cpu_80_{OLD}"
    )
    stay |= library(place, "fusegen_gate_0a1b2c_schemas")
    library(place, f"{of}_AVX512_{OLD}")
    library(place, f"{of}_80_90ptx_{OTHER}")
    result = workshop.run("clean", "--all")
    assert result.stdout.splitlines()[1] == f"removed  2 libraries from {place}, 60 bytes freed"
    assert left(place) == stay


def test_libraries_of_modules_of_one_name_stay(folder: Path, workshop: Workshop) -> None:
    text = "name: cleaned\nsummary: A test.\nformula: x * 5\n"
    workshop.file("specs/sub/cleaned.yaml", text)
    assert workshop.run("build").exit_code == 0
    place = Path("generated/_libraries")
    place.mkdir()
    contents = loads().ahead
    assert {len(each) for each in contents.values()} == {2}
    stay = [library(place, f"{of}_AVX2_{each}") for of, several in contents.items() for each in several]
    of, several = next(iter(loads().built.items()))
    stay += [library(folder, f"{of}_{each}") for each in several]
    assert workshop.run("clean").exit_code == 0
    assert left(place) | left(folder) == set.union(*stay)


def test_a_module_that_was_changed_by_hand_is_not_run(folder: Path, workshop: Workshop) -> None:
    of = next(iter(kernels()))
    files = library(folder, f"{of}_{OLD}")
    with Path("generated/cleaned.py").open("a", encoding="utf-8") as file:
        file.write("\nraise SystemExit('it ran')\n")
    result = workshop.run("clean")
    assert (result.exit_code, left(folder)) == (0, files)
    assert "1 library of another module stays; --all removes them, too\n" in result.stdout


def test_another_runtime_is_refused(folder: Path, workshop: Workshop) -> None:
    with Path("generated/_runtime/build.py").open("a", encoding="utf-8") as file:
        file.write("\n")
    assert workshop.refused("clean") == (
        "generated: the runtime of these modules is another fusegen's, so their libraries are not known\n"
        "  hint: run 'python -m fusegen build' first\n"
    )
    assert workshop.run("clean", "--all").exit_code == 0


def test_without_a_folder_there_is_nothing_to_remove(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(workshop.folder / "absent"))
    result = workshop.run("clean")
    place = workshop.folder / "absent/fusegen"
    assert (result.exit_code, result.output) == (
        0,
        f"{place}: there is no such folder, and nothing to remove\n",
    )


def test_machine_code_of_nvrtc_is_removed_with_all_builds(tmp_path: Path) -> None:
    stem = f"fusegen_m_012345_forward_float32_dense_sm90_{'0' * 16}"
    paths = tuple(tmp_path / f"{stem}{suffix}" for suffix in (".cubin", ".sum"))
    for path in paths:
        path.touch()
    assert stale.of_builds(tmp_path, {}) == stale.Found()
    assert stale.every_build(tmp_path) == stale.Found((paths,))


def test_libraries_of_equal_kernels_have_one_lock(tmp_path: Path) -> None:
    """It goes with the first of them, and alone where there is none."""
    alike, names = f"forward_cpu_{OLD}", ("fusegen_one_0a1b2c", "fusegen_two_0a1b2c")
    for stem in (*(f"{name}_{alike}" for name in names), f"backward_cpu_{OTHER}"):
        (tmp_path / f"{stem}.so").touch()
    lock = tmp_path / f"{alike}.lock"
    lock.touch()
    found = library_folder.libraries(tmp_path)
    first, second = (tmp_path / f"{name}_{alike}.so" for name in names)
    assert found[first.stem] == (first, lock)
    assert found[second.stem] == (second,)
    first.unlink()
    second.unlink()
    assert library_folder.libraries(tmp_path)[alike] == (lock,)
    assert library_folder.ALIKE.fullmatch(alike)
