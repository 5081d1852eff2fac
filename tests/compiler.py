"""The C++ compiler of a test run: the headers that all builds include are compiled once, before them.

The object of a text and of the headers beside it is made once, too, whichever folder it is built in. A
build of a module asks for the flags of the runtime. Most are built with less optimisation,
which changes no bit: the flags forbid what would. A committed module of each method is built as a user's
are, with FUSEGEN_FULL every one, and so is what tests of numerics build (`optimised` in conftest). As a
script it needs little of the standard library, whose imports took most of its time: it runs 900 times.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys

if sys.argv[0] != __file__:  # what the script does without
    import shutil
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

HERE = os.path.dirname(os.path.abspath(__file__))
GENERATED = os.path.join(os.path.dirname(HERE), "generated")
BARE = "bin/c++"  # of processes that name no compiler
LEVEL = "FUSEGEN_TESTS_OPTIMISE"  # where it is set, specs of a test's own are optimised as others are
# committed modules that are optimised: by the formula, with a bitmask, of two tensors, verified, by cubics
OPTIMISED = ("hardsigmoid", "gelu", "relu", "swiglu", "silu", "mish_mish")
NAME = '\n#define FUSEGEN_MODULE "'  # before the name of a module, in its own text
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
# of a process whose output nobody reads
SILENT = ((os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0), (os.POSIX_SPAWN_DUP2, 1, 2))
HEADERS = "algorithm cmath cstdint cstring tuple type_traits vector"
OF_BINDING = "memory stdexcept string"  # which make reading them take a third longer
ON_CPU = """#include "cuda_emulation.h"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <type_traits>
"""  # of CUDA text that runs on the CPU
EMULATED = '#include "cuda_emulation.h"\n', '#include "rows.h"\n'  # the second has the first
EXTENSION = "#include <torch/extension.h>"  # of pybind11's modules
PART = os.path.join(HERE, "headers")  # of it, where a module is built with less optimisation


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
    new = path.with_name(f"{path.name}.{os.getpid()}")  # another worker may be running the old one
    new.write_text(text, encoding="utf-8")
    new.chmod(0o755)
    return new.replace(path)


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


class Once:
    """Where to make a file, none where it is there; of processes that want the same, one makes it."""

    def __init__(self, done: str) -> None:
        """Want a file."""
        self.done, self.new = done, f"{done}.{os.urandom(4).hex()}"

    def __enter__(self) -> str | None:
        os.makedirs(os.path.dirname(self.done), exist_ok=True)
        self.lock = open(f"{self.done}.lock", "ab")
        fcntl.lockf(self.lock, fcntl.LOCK_EX)
        return None if os.path.exists(self.done) else self.new

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.path.exists(self.new):
            os.replace(self.new, self.done)
        self.lock.close()


def key(*of: object) -> str:
    """A name of what is made of some values."""
    return hashlib.sha256(repr(of).encode()).hexdigest()[:16]


def compiled_once(folder: Path | str, text: str, flags: Sequence[str]) -> list[str]:
    """The flags that read headers compiled with these flags, none where they do not compile."""
    header = os.path.join(folder, f"{key(text, flags)}.h")
    done = f"{header}.gch"
    with Once(done) as made:
        if made:
            write(header, text)
            run(["c++", *flags, "-w", "-x", "c++-header", header, "-o", made], *SILENT)
    return ["-include", header] if os.path.exists(done) else []


def run(command: list[str], *actions: tuple[int | str, ...]) -> None:
    """Run a compiler, of which the file that it writes is read, not the status."""
    os.waitpid(os.posix_spawnp(command[0], command, os.environ, file_actions=actions), 0)


def read(path: str) -> str:
    """The text of a file."""
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path: str, text: str) -> None:
    """Write the text of a file."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def library(text: str, flags: Sequence[str]) -> Path:
    """The library that g++ makes of a text, once for all tests of a run."""
    folder = os.environ["TORCH_EXTENSIONS_DIR"]
    done = os.path.join(folder, f"{key(text, flags)}.so")
    with Once(done) as made:
        if made:
            source = f"{made}.cpp"
            write(source, text)
            before = compiled_once(folder, ON_CPU, flags) if any(e in text for e in EMULATED) else []
            command = ["g++", *flags, *before, source, "-o", made]
            told = subprocess.run(command, capture_output=True, text=True)
            assert told.returncode == 0, told.stderr
    return Path(done)


def has_less(source: str) -> bool:
    """Return True if a text, of a module or of no name, is built with less optimisation."""
    if LEVEL in os.environ:
        return False
    full = bool(os.environ.get("FUSEGEN_FULL"))
    _, named, behind = f"\n{source}".partition(NAME)
    if not named:
        return not full
    name = behind.partition('"')[0]
    if not (full or name in OPTIMISED):
        return True
    return not any(f"{name}.py" in files for _, _, files in os.walk(GENERATED))


def source_of(arguments: Sequence[str]) -> str | None:
    """The source that a build of a module compiles; none where it links, or does something else."""
    sources = [argument for argument in arguments if os.path.basename(argument) in SOURCES]
    return sources[0] if sources and "-c" in arguments else None


def target_of(arguments: Sequence[str], source: str) -> str:
    """The object that a build of a source makes."""
    own = os.path.basename(source).removesuffix(".cpp")
    return arguments[arguments.index("-o") + 1] if "-o" in arguments else f"{own}.o"


def adapted(folder: Path | str, arguments: Sequence[str], name: str = "g++") -> list[str]:
    """The arguments of a build of a module by a script, so that it takes less time; others as they are."""
    source = source_of(arguments)
    if source is None:
        return list(arguments)
    text = read(source)
    less = has_less(text)
    found = ["-O0" if less and argument in LEVELS else argument for argument in arguments]
    if less and EXTENSION in text:
        found.insert(0, f"-I{PART}")
    headers = "" if name == BARE else included(text)
    return [*(compiled_once(folder, headers, flags_of(found, source)) if headers else []), *found]


def kept(folder: str, arguments: Sequence[str], name: str) -> str | None:
    """The object of a module's text and of the headers beside it; the same flags compile it once."""
    source = source_of(arguments)
    if source is None:
        return None
    text, flags = read(source), flags_of(arguments, source)
    flags += [argument for argument in arguments if argument.startswith(IN_NAME)]
    paths = [os.path.join(at, f) for at, _, files in os.walk(os.path.dirname(source) or ".") for f in files]
    beside = [read(path) for path in sorted(paths) if path.endswith(".h")]
    done = os.path.join(folder, "objects", f"{key(text, beside, has_less(text), flags)}.o")
    with Once(done) as made:
        if made:
            named = [*arguments, *([] if "-o" in arguments else ["-o", ""])]
            others = [made if k and named[k - 1] == "-o" else each for k, each in enumerate(named)]
            run(["c++", *adapted(folder, others, name)])
    return done if os.path.exists(done) else None


def path_without(folder: Path) -> str:
    """The variable PATH in which the script of a folder does not stand before the compiler."""
    return os.pathsep.join(
        path for path in os.environ["PATH"].split(os.pathsep) if Path(path) != folder / "bin"
    )


def main(folder: str, behind: str, name: str, arguments: Sequence[str]) -> None:
    """Compile or link as the compiler in the folder `behind` does, in whose place the script stands."""
    os.environ["PATH"] = os.pathsep.join((behind, os.environ["PATH"]))
    if not os.access(folder, os.W_OK):
        os.execvp("c++", ["c++", *arguments])
    source = source_of(arguments)
    if found := kept(folder, arguments, name):
        with open(found, "rb") as one, open(target_of(arguments, source or found), "wb") as other:
            other.write(one.read())
    elif source:
        sys.exit(1)
    else:
        os.execvp("c++", ["c++", *adapted(folder, arguments, name)])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
