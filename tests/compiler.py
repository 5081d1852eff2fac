"""The C++ compiler of a test run: the headers that all builds include are compiled once, before them.

The object of a text and of the headers beside it is made once, too, whichever folder it is built in. A
build of a module asks for the flags of the runtime. Most are built with less optimisation,
which changes no bit: the flags forbid what would. A committed module of each method is built as a user's
are, with FUSEGEN_FULL every one, and so is what tests of numerics build (`optimised` in conftest). As a
script it needs the standard library only.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

GENERATED = Path(__file__).resolve().parent.parent / "generated"
BARE = "bin/c++"  # of processes that name no compiler
LEVEL = "FUSEGEN_TESTS_OPTIMISE"  # where it is set, specs of a test's own are optimised as others are
# committed modules that are optimised: by the formula, with a bitmask, of two tensors, verified, by cubics
OPTIMISED = ("hardsigmoid", "gelu", "relu", "swiglu", "silu", "mish_mish")
NAME = re.compile(r'^#define FUSEGEN_MODULE "(\w+)"$', re.MULTILINE)
IN_NAME = "-DTORCH_EXTENSION_NAME="  # which differs from build to build, and is in no header that is kept
WITHOUT, WITH_NEXT = ("-MMD", "-c"), ("-MF", "-o")  # which say what to compile, not how
SOURCES = ("main.cpp", "binding.cpp")  # of a module
LEVELS = ("-O3", "-O1")  # of the kernel and of the binding
# gold links in half the time; what stands for PyTorch's library, of no code, is linked once
SCRIPT = """#!/bin/sh
linker="{behind}:$PATH"
case "$*" in
"-shared -Wl,-soname,libtorch_cpu.so -o libtorch_cpu.so -x assembler /dev/null -x none")
  cp "{folder}/libtorch_cpu.so" . 2>/dev/null && exit
  PATH=$linker c++ {gold} "$@" || exit
  cp libtorch_cpu.so "{folder}/libtorch_cpu.$$" 2>/dev/null &&
    mv "{folder}/libtorch_cpu.$$" "{folder}/libtorch_cpu.so"
  exit 0 ;;
*" -shared "* | "-shared "*) PATH=$linker exec c++ {gold} "$@" ;;
esac
exec {command} "$@"
"""
HEADERS = "algorithm cmath cstdint cstring tuple type_traits vector"
OF_BINDING = "memory stdexcept string"  # which make reading them take a third longer
ON_CPU = """#include "cuda_emulation.h"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <type_traits>
"""  # of CUDA text that runs on the CPU
EMULATED = re.compile(r'^#include "(?:cuda_emulation|rows)\.h"$', re.MULTILINE)  # the second has the first
EXTENSION = "#include <torch/extension.h>"  # of pybind11's modules
PART = Path(__file__).resolve().parent / "headers"  # of it, where a module is built with less optimisation


def script(
    folder: Path,  # where it is
    # of the file; `BARE` compiles no headers before, which pays for many builds of the same flags
    name: str = "g++",
) -> Path:
    """The path of a new compiler that keeps what it compiles once in a folder."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    behind = Path(shutil.which("c++", path=path_without(folder)) or "c++").parent
    command = f'"{sys.executable}" -I -S "{__file__}" "{folder}" "{behind}" "{name}"'
    gold = "-fuse-ld=gold" if shutil.which("ld.gold") else ""
    text = SCRIPT.format(folder=folder, behind=behind, gold=gold, command=command)
    with tempfile.TemporaryDirectory(dir=folder) as place:  # another worker may be running the old one
        new = Path(place, "new")
        new.write_text(text, encoding="utf-8")
        new.chmod(0o755)
        new.replace(path)
    return path


def included(source: str) -> str:
    """The text of the headers that come before a module's own; none where few builds have the same."""
    names = f"{HEADERS} {OF_BINDING}" if "#include <string>" in source else HEADERS
    return "" if EXTENSION in source else "".join(f"#include <{name}>\n" for name in names.split())


def flags_of(arguments: Sequence[str], source: str) -> list[str]:
    """The flags without those that name files."""
    given = iter(arguments)
    kept = []
    for argument in given:
        if argument in WITH_NEXT:
            next(given)
        elif argument not in (*WITHOUT, source) and not argument.startswith(IN_NAME):
            kept.append(argument)
    return kept


@contextlib.contextmanager
def once(done: Path) -> Iterator[Path | None]:
    """Where to make a file, none where it is there; of processes that want the same, one makes it."""
    folder = done.parent
    folder.mkdir(exist_ok=True)
    with open(done.with_suffix(".lock"), "ab") as lock, tempfile.TemporaryDirectory(dir=folder) as place:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        new = Path(place, done.name)
        yield None if done.exists() else new
        if new.exists():
            new.replace(done)


def key(*of: object) -> str:
    """A name of what is made of some values."""
    return hashlib.sha256(repr(of).encode()).hexdigest()[:16]


def compiled_once(folder: Path, text: str, flags: Sequence[str]) -> list[str]:
    """The flags that read headers compiled with these flags, none where they do not compile."""
    header = folder / f"{key(text, flags)}.h"
    done = folder / f"{header.name}.gch"
    with once(done) as made:
        if made:
            header.write_text(text, encoding="utf-8")
            command = ["c++", *flags, "-w", "-x", "c++-header", str(header), "-o", str(made)]
            subprocess.run(command, capture_output=True)
    return ["-include", str(header)] if done.exists() else []


def library(text: str, flags: Sequence[str]) -> Path:
    """The library that g++ makes of a text, once for all tests of a run."""
    done = Path(os.environ["TORCH_EXTENSIONS_DIR"], f"{key(text, flags)}.so")
    with once(done) as made:
        if made:
            source = made.with_suffix(".cpp")
            source.write_text(text, encoding="utf-8")
            before = compiled_once(done.parent, ON_CPU, flags) if EMULATED.search(text) else []
            command = ["g++", *flags, *before, str(source), "-o", str(made)]
            told = subprocess.run(command, capture_output=True, text=True)
            assert told.returncode == 0, told.stderr
    return done


def has_less(name: re.Match[str] | None) -> bool:
    """Return True if a module of this name, or a file without one, is built with less optimisation."""
    if LEVEL in os.environ:
        return False
    if name is None:
        return not os.environ.get("FUSEGEN_FULL")
    committed = bool([*GENERATED.rglob(f"{name[1]}.py")])
    return not committed or not (name[1] in OPTIMISED or os.environ.get("FUSEGEN_FULL"))


def source_of(arguments: Sequence[str]) -> Path | None:
    """The source that a build of a module compiles; none where it links, or does something else."""
    sources = [Path(argument) for argument in arguments if Path(argument).name in SOURCES]
    return sources[0] if sources and "-c" in arguments else None


def target_of(arguments: Sequence[str], source: Path) -> str:
    """The object that a build of a source makes."""
    return arguments[arguments.index("-o") + 1] if "-o" in arguments else f"{source.stem}.o"


def adapted(folder: Path, arguments: Sequence[str], name: str = "g++") -> list[str]:
    """The arguments of a build of a module by a script, so that it takes less time; others as they are."""
    source = source_of(arguments)
    if source is None:
        return list(arguments)
    text = source.read_text(encoding="utf-8")
    less = has_less(NAME.search(text))
    found = ["-O0" if less and argument in LEVELS else argument for argument in arguments]
    if less and EXTENSION in text:
        found.insert(0, f"-I{PART}")
    headers = "" if name == BARE else included(text)
    return [*(compiled_once(folder, headers, flags_of(found, str(source))) if headers else []), *found]


def kept(folder: Path, arguments: Sequence[str], name: str) -> Path | None:
    """The object of a module's text and of the headers beside it; the same flags compile it once."""
    source = source_of(arguments)
    if source is None:
        return None
    text, flags = source.read_text(encoding="utf-8"), flags_of(arguments, str(source))
    flags += [argument for argument in arguments if argument.startswith(IN_NAME)]
    beside = [path.read_text(encoding="utf-8") for path in sorted(source.parent.rglob("*.h"))]
    done = folder / "objects" / f"{key(text, beside, has_less(NAME.search(text)), flags)}.o"
    with once(done) as made:
        if made:
            named = [*arguments, *([] if "-o" in arguments else ["-o", ""])]
            others = [str(made) if k and named[k - 1] == "-o" else each for k, each in enumerate(named)]
            subprocess.run(["c++", *adapted(folder, others, name)])
    return done if done.exists() else None


def path_without(folder: Path) -> str:
    """The variable PATH in which the script of a folder does not stand before the compiler."""
    return os.pathsep.join(
        path for path in os.environ["PATH"].split(os.pathsep) if Path(path) != folder / "bin"
    )


def main(folder: Path, behind: str, name: str, arguments: Sequence[str]) -> None:
    """Compile or link as the compiler in the folder `behind` does, in whose place the script stands."""
    os.environ["PATH"] = os.pathsep.join((behind, os.environ["PATH"]))
    if not os.access(folder, os.W_OK):
        os.execvp("c++", ["c++", *arguments])
    source = source_of(arguments)
    if found := kept(folder, arguments, name):
        shutil.copyfile(found, target_of(arguments, source or found))
    elif source:
        sys.exit(1)
    else:
        os.execvp("c++", ["c++", *adapted(folder, arguments, name)])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
