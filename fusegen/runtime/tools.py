"""The tools of a build: compilers, what torch starts, and the flags that they take."""

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import sys
import tempfile
from typing import Any, Iterator, List, Optional

from . import flavour, nvrtc, started
from .cache import digest
from .checks import check
from .flags import GCC_FLAGS

COMPILER, COMPILERS = "FUSEGEN_CUDA_COMPILER", ("nvcc", "nvrtc")
USUAL = "/usr/local/cuda"  # the folder of the toolkit unless the environment names another
COMMANDS = ("CXX", "PYTORCH_NVCC")  # variables that hold a compiler's command
FLAGS = (
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
)
# flags under which an operation no longer rounds once, as written, or loses NaN, infinities and subnormals
UNSAFE = re.compile(
    r"-Ofast|-f(fast-math|unsafe-math-optimizations|finite-math-only|associative-math|reciprocal-math)"
    r"|-ffp-contract=(fast|on)|-fno-signed-zeros|-mdaz-ftz|--?use_fast_math|--?fmad[= ]true|--?ftz[= ]true"
    r"|--?prec-(div|sqrt)[= ]false"
)


def find_compiler(module: str) -> "List[str]":
    """Return the words of the C++ compiler's command, which has no flag that changes results."""
    compiler = os.environ.get("CXX", "").strip() or "c++"
    words = _words(module, "CXX", compiler)
    check(shutil.which(words[0]), module, f"no C++ compiler {compiler}; install g++ or set CXX")
    for variable in (*COMMANDS, *FLAGS):
        unsafe = UNSAFE.search(os.environ.get(variable, ""))
        check(
            not unsafe, module, f"{variable} has {unsafe and unsafe[0]}, which changes results; remove it"
        )
    return words


def find_torchs(module: str, device: str) -> str:
    """Return a PATH with what torch starts for a build."""
    from torch.utils import cpp_extension

    toolkit: Any = cpp_extension.CUDA_HOME
    folders = os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable or "")
    path = os.pathsep.join(folder for folder in folders if folder)
    check(shutil.which("ninja", path=path), module, "no ninja; pip install ninja")
    found = device == "cpu" or (toolkit and shutil.which(nvcc_command(toolkit)[0]))
    check(found, module, "no nvcc; install the CUDA toolkit or set CUDA_HOME")
    return path


def cuda_compiler(module: str) -> str:
    """The compiler of kernels for CUDA: the one that is chosen, else nvcc, else NVRTC if it is there."""
    chosen = os.environ.get(COMPILER, "")
    other = f"{COMPILER} is {chosen!r}; it must be {' or '.join(COMPILERS)}"
    check(chosen in ("", *COMPILERS), module, other)
    return chosen or ("nvrtc" if not has_nvcc() and nvrtc.found() else "nvcc")


def begins_by_nvrtc() -> bool:
    """Return True if NVRTC compiles what it can, and nvcc the rest: both are there, and none is chosen."""
    if os.environ.get(COMPILER) or not has_nvcc():
        return False
    have = nvrtc.found()
    return have is not None and have.version[0] == nvrtc.cuda_major() and nvrtc.has_headers()


def has_nvcc() -> bool:
    """Return True if there is an nvcc where torch looks for it."""
    if os.environ.get("PYTORCH_NVCC"):
        return True
    homes = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), USUAL)
    paths = [os.path.join(home, "bin", "nvcc") for home in homes if home]
    return bool(shutil.which("nvcc")) or any(map(os.path.exists, paths))


def _words(module: str, variable: str, command: str) -> "List[str]":
    """Return the words of a command in a variable of the environment."""
    with contextlib.suppress(ValueError):
        return shlex.split(command)
    raise RuntimeError(f"{module}: {variable} is no command, for a quotation has no end: {command}")


class Environment:
    """Sets variables of the environment for the tools that torch starts, and then puts them back."""

    def __init__(self, **values: str) -> None:
        self.values = values

    def __enter__(self) -> None:
        self.before = {name: os.environ[name] for name in self.values if name in os.environ}
        os.environ.update(self.values)

    def __exit__(self, *_: Any) -> None:
        for name in self.values.keys() - self.before.keys():
            del os.environ[name]
        os.environ.update(self.before)


@contextlib.contextmanager
def compilers(module: str, device: str, place: "Optional[pathlib.Path]") -> "Iterator[List[str]]":
    """Have the environment of builds, and give the words of the C++ compiler's command.

    Args:
        module: its name.
        device: of its kernels.
        place: the folder of temporary folders, or None for the system's.
    """
    words = find_compiler(module)
    with contextlib.ExitStack() as stack:
        if not is_direct(device):
            path = find_torchs(module, device)
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=place))
            stack.enter_context(Environment(CXX=one_word(words, folder), PATH=path))
        yield words


def is_direct(device: str) -> bool:
    """Return True if a build for a device calls the C++ compiler itself, and not torch's functions."""
    return bool(flavour.SYSTEM) and device == "cpu"


def place_of(root: pathlib.Path) -> "Optional[pathlib.Path]":
    """Return the folder of builds if ninja takes its path, so that temporary folders are in it."""
    return root if re.fullmatch(r"[\w./+,=@-]+", str(root), re.ASCII) else None


def made_by(device: str) -> str:
    """Return a line on what compiles a device's kernels here; empty if there is no compiler.

    It is a digest of the compilers' paths, sizes and times, and of the variables that add flags.
    """
    words: "List[str]" = []
    with contextlib.suppress(ValueError):  # a command that cannot be read builds nothing
        words += shlex.split(os.environ.get("CXX", "")) or ["c++"]
        if device == "cuda":
            words += shlex.split(os.environ.get("PYTORCH_NVCC", "")) or [USUAL + "/bin/nvcc", "nvcc"]
    found = [(os.path.realpath(path), os.stat(path)) for path in filter(None, map(shutil.which, words))]
    states = [(path, state.st_size, state.st_mtime_ns) for path, state in found]
    given = [(name, os.environ.get(name, "")) for name in (*COMMANDS, *FLAGS)]
    return f"made by {digest(repr((states, given)))}\n" if states else ""


def one_word(words: "List[str]", folder: str) -> str:
    """Return a compiler as torch takes it: for a launcher and a compiler, a script that runs both."""
    if len(words) == 1:
        return words[0]
    script = pathlib.Path(folder, "c++")
    script.write_bytes(os.fsencode(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'))
    script.chmod(0o700)
    return str(script)


def accepted(flags: "List[str]", words: "List[str]", folder: str) -> "List[str]":
    """Return the flags without those only for speed that the compiler refuses, as clang does."""
    empty = pathlib.Path(folder, "empty.cpp")
    empty.touch()

    def refuses(some: "List[str]") -> bool:
        command = [*words, *some, "-Werror", "-c", str(empty), "-o", str(empty.with_suffix(".o"))]
        return started.run(command).returncode != 0

    refused = [flag for flag in GCC_FLAGS if refuses([flag])] if refuses(GCC_FLAGS) else []
    return [flag for flag in flags if flag not in refused]


def nvcc_command(toolkit: str) -> "List[str]":
    """Return the words of nvcc's command, as torch finds it."""
    return shlex.split(os.environ.get("PYTORCH_NVCC", "")) or [os.path.join(toolkit, "bin", "nvcc")]


def split_compile(toolkit: str) -> "List[str]":
    """Return the flag for ptxas to use every processor, if this nvcc has it."""
    told = started.run([*nvcc_command(toolkit), "--version"], text=True).stdout
    release = re.search(r"release (\d+)\.", told)
    return ["-Xptxas=--split-compile=0"] if release and int(release[1]) >= 13 else []
