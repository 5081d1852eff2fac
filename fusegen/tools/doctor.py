"""The checks of `doctor`: the tools, the folders and the files that builds and modules need.

Each check returns a `Finding`. It works without torch, which it then reports.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from fusegen.core import access, manifest
from fusegen.errors import FusegenError, counted
from fusegen.project import library_folder, outputs, toolkit

OLDEST = {"stable": (2, 10), "pybind": (2, 0)}  # PyTorch, by binding, as in runtime/flavour.py
OK, MISSING, WRONG = "ok", "missing", "wrong"
NEEDED = ("torch", "compiler", "builds", "output")  # by builds for the CPU, whatever the binding
BY_PYTORCH = "pybind"  # the binding whose builds PyTorch does, by ninja
LEAST_SPACE = 2**27  # bytes: a build of one kernel for CUDA takes some 10 MB
SECONDS = 60  # for a compiler to answer
PROBE = "#if __cplusplus < 201703L\n#error\n#endif\n#include <vector>\nint probed() { return 0; }\n"


@dataclass(frozen=True)
class Finding:
    """The result of a check."""

    name: str  # of what was checked
    state: str  # ``ok``, ``missing`` or ``wrong``
    text: str  # what was found
    remedy: str = ""  # what to do, unless all is well
    needed: bool = False  # whether a build for the CPU needs it


@dataclass(frozen=True)
class Project:
    """The folders of a project: of its modules, and of its specs."""

    output: Path
    specs: Path


def findings(project: Project) -> Iterator[Finding]:
    """Yield the result of each check, as soon as it is known."""
    needed = (*NEEDED, "ninja") if _binding(project) == BY_PYTORCH else NEEDED
    for check in CHECKS:
        found = check(project)
        yield replace(found, needed=found.name in needed)


def _torch(project: Project) -> Finding:
    version = _version()
    if not version:
        return Finding("torch", MISSING, "not installed", "pip install 'fusegen[torch]'")
    binding = _binding(project)
    oldest = ".".join(map(str, OLDEST[binding]))
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST[binding]:
        text = f"{version}, and modules of the binding {binding} need {oldest} or newer"
        other = " or build with --binding pybind" if binding == "stable" else ""
        return Finding("torch", WRONG, text, f"pip install 'torch>={oldest}'{',' if other else ''}{other}")
    return Finding("torch", OK, f"{version}; the binding {binding} needs {oldest} or newer")


def _version() -> str:
    """Return the version of PyTorch; empty if there is none."""
    try:
        return metadata.version("torch") if find_spec("torch") else ""
    except metadata.PackageNotFoundError:
        return ""


def _binding(project: Project) -> str:
    try:
        return manifest.read(project.output).binding
    except FusegenError:  # which the check of the folder reports
        return manifest.BINDINGS[0]


def _gpu(project: Project) -> Finding:
    if not _version():
        return Finding("gpu", MISSING, "not known without torch")
    import torch

    if torch.version.cuda is None:
        text = "this PyTorch has no CUDA; modules run on the CPU"
        return Finding("gpu", MISSING, text, "install a PyTorch with CUDA to use a GPU")
    if not torch.cuda.is_available():
        text = f"CUDA {torch.version.cuda}, and no GPU; modules run on the CPU"
        return Finding("gpu", MISSING, text, "check 'nvidia-smi' if there should be one")
    every = (torch.cuda.get_device_properties(k) for k in range(torch.cuda.device_count()))
    names = ", ".join(f"{each.name} (compute capability {each.major}.{each.minor})" for each in every)
    return Finding("gpu", OK, f"CUDA {torch.version.cuda}, {names}")


def _nvcc(project: Project) -> Finding:
    if not _version():
        found = shutil.which("nvcc")
        return Finding("nvcc", OK if found else MISSING, found or "none on PATH")
    home = toolkit.home()
    if home is None:
        remedy = "install the CUDA toolkit and set CUDA_HOME, or pip install 'fusegen[cuda]'"
        return Finding("nvcc", MISSING, "kernels are built for the CPU only", remedy)
    import torch
    from torch.utils import cpp_extension

    release = re.search(r"release ([\d.]+)", _answer([*toolkit.nvcc(home), "--version"]))
    text, cuda = f"{release[1] if release else 'unknown version'} in {home}", torch.version.cuda
    if release and cuda and cuda.split(".")[0] != release[1].split(".")[0]:
        remedy = f"set CUDA_HOME to a toolkit of CUDA {cuda.split('.')[0]}"
        return Finding("nvcc", WRONG, f"{text}, and this PyTorch has CUDA {cuda}", remedy)
    if cuda and cpp_extension.CUDA_HOME is None:
        text += ", which 'compile' uses; builds on first use do not find it"
        return Finding("nvcc", WRONG, text, f"set CUDA_HOME={home}")
    return Finding("nvcc", OK, text)


def _nvrtc(project: Project) -> Finding:
    if not _version():
        return Finding("nvrtc", MISSING, "not known without torch")
    import torch

    from fusegen.runtime import nvrtc

    if torch.version.cuda is None:
        return Finding("nvrtc", MISSING, "this PyTorch has no CUDA")
    have = nvrtc.found()
    if have is None:
        return Finding("nvrtc", MISSING, "kernels for CUDA need nvcc", nvrtc.wheel("nvrtc"))
    text = f"{have.version[0]}.{have.version[1]} in {have.path}"
    if have.version[0] != nvrtc.cuda_major():
        text += f", and this PyTorch has CUDA {torch.version.cuda}"
        return Finding("nvrtc", WRONG, text, nvrtc.wheel("nvrtc"))
    return Finding("nvrtc", OK, f"{text}; it compiles kernels where there is no nvcc")


def _answer(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _compiler(project: Project) -> Finding:
    given = os.environ.get("CXX", "").strip() or "c++"
    try:
        words = shlex.split(given)
    except ValueError:
        return Finding("compiler", WRONG, f"CXX={given}: a quotation has no end", "set CXX to a command")
    if not shutil.which(words[0]):
        return Finding("compiler", MISSING, f"no {words[0]}", "install g++, or set CXX to a C++ compiler")
    version = next(iter(_answer([*words, "--version"]).splitlines()), "")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "probe.cpp"), Path(folder, "probe.so")
        source.write_text(PROBE, encoding="utf-8")
        _answer([*words, "-std=c++17", "-shared", "-fPIC", str(source), "-o", str(library)])
        if not library.exists():
            text = f"{given} ({version or 'unknown version'}) makes no library of C++17"
            return Finding("compiler", WRONG, text, "install g++ 9 or newer, or set CXX")
    return Finding("compiler", OK, f"{given}: {version}")


def _ninja(project: Project) -> Finding:
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable or "")))
    found = shutil.which("ninja", path=path)
    return Finding(
        "ninja", OK if found else MISSING, found or "not found", "" if found else "pip install ninja"
    )


def _builds(project: Project) -> Finding:
    other = "set TORCH_EXTENSIONS_DIR to another folder"
    try:
        folder = library_folder.build_folder()
        access.require_writable(folder / "probe.so")
        if folder.is_dir() and not library_folder.is_trusted(folder):
            text, remedy = f"other users can write {folder}", f"chown it, chmod go-w, or {other}"
            return Finding("builds", WRONG, text, remedy)
        place = next(each for each in (folder, *folder.parents) if each.is_dir())
        space = shutil.disk_usage(place).free
        if os.statvfs(place).f_flag & os.ST_NOEXEC:
            return Finding("builds", WRONG, f"{folder} is mounted noexec", other)
    except FusegenError as error:
        return Finding("builds", WRONG, f"{error.span}: {error.message}", other)
    if space < LEAST_SPACE:
        text = f"{folder}: {space / 2**20:.0f} MiB free"
        return Finding("builds", WRONG, text, f"free some space, run 'fusegen clean', or {other}")
    return Finding("builds", OK, f"{folder}, {space / 2**30:.1f} GiB free")


def _libraries(project: Project) -> Finding:
    named = library_folder.named_libraries()
    absent = [each.as_posix() for each in named if not each.is_dir()]
    if absent:
        text = f"{library_folder.VARIABLE} names {', '.join(absent)}, and there is no such folder"
        return Finding("libraries", WRONG, text, "run 'fusegen compile --into' it, or correct the variable")
    folders = [each for each in (*named, project.output / library_folder.LIBRARIES) if each.is_dir()]
    whole = [path for folder in folders for path in sorted(folder.glob("*.so"))]
    bare = [path for path in whole if not path.with_suffix(".sum").exists()]
    if bare:
        text = f"{counted(len(bare), 'file')} without a digest beside them, such as {bare[0]}"
        return Finding("libraries", WRONG, text, "delete them, and run 'fusegen compile'")
    text = f"{len(whole)} in {', '.join(map(str, folders))}"
    none = "none compiled ahead of time; kernels are built on first use"
    return Finding("libraries", OK, text if whole else none)


def _output(project: Project) -> Finding:
    try:
        manifest.read(project.output)
        access.require_writable(project.output / manifest.NAME)
    except FusegenError as error:
        return Finding("output", WRONG, f"{error.span}: {error.message}", error.hinted)
    return Finding("output", OK, f"{project.output} can be written")


def _certificates(project: Project) -> Finding:
    try:
        found = outputs.opened(project.output, project.specs).uncertified()
    except FusegenError:
        return Finding("certificates", WRONG, "not known, for the manifest cannot be read")
    if found:
        text = f"{counted(len(found), 'certificate')} without a module, such as {found[0]}"
        return Finding("certificates", WRONG, text, "delete them")
    return Finding("certificates", OK, "each has a module")


CHECKS: tuple[Callable[[Project], Finding], ...] = (
    *(_torch, _gpu, _nvcc, _nvrtc, _compiler, _ninja),
    *(_builds, _libraries, _output, _certificates),
)
