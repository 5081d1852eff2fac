"""`doctor`: a line for each tool and folder, with a remedy where one is missing or wrong."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import Workshop
from test_records import lines

from fusegen.project import library_folder
from fusegen.runtime import flavour, flavour_pybind, nvrtc, prebuilt
from fusegen.tools import doctor
from fusegen.tools.doctor import CHECKS, NEEDED, OLDEST, Finding, Project

WHEEL = "pip install 'nvidia-cuda-nvrtc==13.*'"
PROJECT = Project(Path("generated"), Path("specs"))


def found(name: str) -> Finding:
    [check] = [each for each in CHECKS if each.__name__ == f"_{name}"]
    return check(PROJECT)


def told(state: str, text: str, remedy: str = "") -> Callable[[Finding], bool]:
    return lambda one: (one.state, one.text, one.remedy) == (state, text, remedy)


def test_a_line_for_each_check_in_their_order(built: Workshop) -> None:
    printed = built.done("doctor")
    names = [line[9:22].strip() for line in printed.splitlines()]
    assert names == [check.__name__.removeprefix("_") for check in CHECKS]
    assert f"ok       torch        {torch.__version__}; the binding stable needs 2.10 or newer" in printed


def test_the_records_say_the_same(built: Workshop) -> None:
    records = lines(built.run("doctor", "--json").stdout, "doctor")
    assert [(one["name"], one["needed"]) for one in records] == [
        (check.__name__[1:], check.__name__[1:] in NEEDED) for check in CHECKS
    ]
    assert {one["name"] for one in records} >= set(NEEDED)


@pytest.mark.parametrize(("binding", "needs"), [("stable", False), ("pybind", True)])
def test_pytorchs_builds_need_ninja(monkeypatch: pytest.MonkeyPatch, binding: str, needs: bool) -> None:
    monkeypatch.setattr(doctor, "_binding", lambda _: binding)
    assert {each.name: each.needed for each in doctor.findings(PROJECT)}["ninja"] is needs


def test_the_oldest_versions_and_the_names_are_the_runtimes() -> None:
    assert OLDEST == {"stable": flavour.MINIMUM, "pybind": flavour_pybind.MINIMUM}
    assert (library_folder.LIBRARIES, library_folder.VARIABLE) == (prebuilt.FOLDER, prebuilt.VARIABLE)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("version", "binding", "state", "text"),
    [
        ("", "stable", "missing", "not installed"),
        ("2.9.1", "stable", "wrong", "2.9.1, and modules of the binding stable need 2.10 or newer"),
        ("2.10.0a0+git", "stable", "ok", "2.10.0a0+git; the binding stable needs 2.10 or newer"),
        ("2.9.1", "pybind", "ok", "2.9.1; the binding pybind needs 2.0 or newer"),
        ("1.13.1", "pybind", "wrong", "1.13.1, and modules of the binding pybind need 2.0 or newer"),
    ],
)
def test_pytorch_is_new_enough_for_the_binding_of_the_folder(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, version: str, binding: str, state: str, text: str
) -> None:
    workshop.spec("gate", "formula: x + 1")
    workshop.run("build", "--binding", binding)
    monkeypatch.setattr(doctor, "_version", lambda: version)
    one = found("torch")
    assert (one.state, one.text) == (state, text)
    assert bool(one.remedy) == (state != "ok")
    assert workshop.run("doctor").exit_code == (state != "ok")


def test_it_works_without_torch(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda: "")
    result = workshop.run("doctor")
    assert result.exit_code == 1
    assert result.stdout.startswith(
        "missing  torch        not installed; pip install 'fusegen[torch]'\n"
        "missing  gpu          not known without torch\n"
    )


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "/nonexistent/g++ -m64",
            told("missing", "no /nonexistent/g++", "install g++, or set CXX to a C++ compiler"),
        ),
        ("g++ '", told("wrong", "CXX=g++ ': a quotation has no end", "set CXX to a command")),
        (
            "false",
            told(
                "wrong",
                "false (unknown version) makes no library of C++17",
                "install g++ 9 or newer, or set CXX",
            ),
        ),
        ("env g++", lambda one: one.state == "ok" and one.text.startswith("env g++: g++ ")),
    ],
)
def test_the_compiler_has_to_make_a_library(
    monkeypatch: pytest.MonkeyPatch, command: str, expected: Callable[[Finding], bool]
) -> None:
    monkeypatch.setenv("CXX", command)
    assert expected(found("compiler")), found("compiler")


def test_ninja_is_looked_for_beside_python_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python"))
    assert told("missing", "not found", "pip install ninja")(found("ninja"))
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "bin" / "ninja")
    assert told("ok", str(tmp_path / "bin" / "ninja"))(found("ninja"))


def test_the_folder_of_builds_is_examined_and_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "new"))
    one = found("builds")
    assert (one.state, one.text.startswith(f"{tmp_path}/new/fusegen, ")) == ("ok", True)
    assert not (tmp_path / "new").exists()
    (tmp_path / "new" / "fusegen").mkdir(parents=True)
    (tmp_path / "new" / "fusegen").chmod(0o777)
    remedy = "chown it, chmod go-w, or set TORCH_EXTENSIONS_DIR to another folder"
    assert told("wrong", f"other users can write {tmp_path}/new/fusegen", remedy)(found("builds"))


def test_a_folder_of_builds_below_a_file_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "file"))
    text = f"{tmp_path}/file: this cannot be used: it is a file, where a folder is needed"
    assert told("wrong", text, "set TORCH_EXTENSIONS_DIR to another folder")(found("builds"))


def test_an_environment_without_a_place_for_builds_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    unset = "no folder to build in: neither TORCH_EXTENSIONS_DIR, XDG_CACHE_HOME nor HOME is set"
    assert (found("builds").state, found("builds").text) == ("wrong", f"TORCH_EXTENSIONS_DIR: {unset}")


@pytest.mark.parametrize(
    ("flag", "free", "text"), [(os.ST_NOEXEC, 2**40, "is mounted noexec"), (0, 2**20, ": 1 MiB free")]
)
def test_builds_need_space_and_a_file_system_that_runs_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: int, free: int, text: str
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_flag=flag))
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    one = found("builds")
    assert (one.state, text in one.text) == ("wrong", True)


def test_folders_of_libraries_exist_and_have_digests(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told("ok", "none compiled ahead of time; kernels are built on first use")(found("libraries"))
    workshop.file("generated/_libraries/a.so", "")
    one = found("libraries")
    assert one.text == "1 file without a digest beside them, such as generated/_libraries/a.so"
    workshop.file("generated/_libraries/a.sum", "")
    assert told("ok", "1 in generated/_libraries")(found("libraries"))
    monkeypatch.setenv(library_folder.VARIABLE, f"absent{os.pathsep}generated")
    assert found("libraries").text == "FUSEGEN_LIBRARIES names absent, and there is no such folder"


def test_the_output_folder_has_to_be_fusegens_and_its_certificates_of_modules(built: Workshop) -> None:
    assert told("ok", "each has a module")(found("certificates"))
    built.file("generated/gone.certificate.txt", "{}")
    text = "1 certificate without a module, such as generated/gone.certificate.txt"
    assert told("wrong", text, "delete them")(found("certificates"))
    assert built.run("doctor").exit_code == 0  # which no build needs
    built.file("generated/MANIFEST.toml", "a = 1\n")
    one = found("output")
    assert (one.state, "this is not a manifest of fusegen" in one.text, bool(one.remedy)) == (
        "wrong",
        True,
        True,
    )
    assert built.run("doctor").exit_code == 1


@pytest.mark.parametrize(
    ("home", "cuda", "state", "remedy"),
    [
        (
            None,
            "13.0",
            "missing",
            "install the CUDA toolkit and set CUDA_HOME, or pip install 'fusegen[cuda]'",
        ),
        ("13.0", "12.8", "wrong", "set CUDA_HOME to a toolkit of CUDA 12"),
        ("13.0", "13.0", "ok", ""),
        ("13.0", None, "ok", ""),
    ],
)
def test_nvcc_has_the_major_version_of_pytorch(
    workshop: Workshop,
    monkeypatch: pytest.MonkeyPatch,
    home: str | None,
    cuda: str | None,
    state: str,
    remedy: str,
) -> None:
    nvcc = workshop.file("bin/nvcc", f"#!/bin/sh\necho 'Cuda compilation tools, release {home}, V'\n")
    nvcc.chmod(0o755)
    monkeypatch.delenv("PYTORCH_NVCC", raising=False)
    monkeypatch.setattr("fusegen.project.toolkit.home", lambda: workshop.folder if home else None)
    monkeypatch.setattr("torch.version.cuda", cuda)
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", str(workshop.folder))
    one = found("nvcc")
    assert (one.state, one.remedy) == (state, remedy)


@pytest.mark.parametrize(
    ("version", "cuda", "finding"),
    [
        (None, None, Finding("nvrtc", "missing", "this PyTorch has no CUDA")),
        (
            *(None, "13.0"),
            Finding(
                "nvrtc", "missing", "kernels for CUDA need nvcc", "pip install 'nvidia-cuda-nvrtc==13.*'"
            ),
        ),
        (
            *((12, 8), "13.0"),
            Finding(*("nvrtc", "wrong", "12.8 in libnvrtc.so, and this PyTorch has CUDA 13.0"), WHEEL),
        ),
        (
            *((13, 0), "13.0"),
            Finding("nvrtc", "ok", "13.0 in libnvrtc.so; it compiles kernels where there is no nvcc"),
        ),
    ],
)
def test_nvrtc_has_the_major_version_of_pytorch(
    version: tuple[int, int] | None, cuda: str | None, finding: Finding, monkeypatch: pytest.MonkeyPatch
) -> None:
    have = nvrtc.Nvrtc(None, version, "libnvrtc.so") if version else None
    monkeypatch.setattr(nvrtc, "found", lambda: have)
    monkeypatch.setattr("torch.version.cuda", cuda)
    assert found("nvrtc") == finding


def test_nvcc_of_pip_is_not_that_of_builds_on_first_use(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.file("bin/nvcc", "#!/bin/sh\necho release 13.0,\n").chmod(0o755)
    monkeypatch.delenv("PYTORCH_NVCC", raising=False)
    monkeypatch.setattr("fusegen.project.toolkit.home", lambda: workshop.folder)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", None)
    assert (found("nvcc").state, found("nvcc").remedy) == ("wrong", f"set CUDA_HOME={workshop.folder}")
