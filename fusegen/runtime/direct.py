"""The build of a library for the CPU by calls of the C++ compiler only, without ninja, side by side.

One call compiles the kernel, another the binding, which computes no element and is hardly optimised. The
library names PyTorch's, which is loaded: a linker would read its symbols for a third of a second.
"""

import os
import pathlib
from typing import Any, Dict, List

import torch

from . import started, together, tools
from .headers import inlined
from .sources import header

STANDARD = ["-std=c++17", "-fPIC"]
LEVEL = "-O1"  # of the binding; -O3 takes a second longer, and a call as long
PYTORCH = "libtorch_cpu.so"  # which has the functions of system/shim.h
THREADS = '#include "stable_abi_parallel.h"\n'


class Folder:
    """A folder of a build, in which a compiler runs.

    Attributes:
        path: of the folder.
        words: of the compiler's command.
        most: compilers that may run at once.
    """

    def __init__(self, path: str, words: "List[str]", most: int) -> None:
        self.path, self.words, self.most = pathlib.Path(path), words, max(most, 1)

    def run(self, *arguments: str) -> str:
        """Run the compiler, and return what it says if it fails."""
        command = [*self.words, *arguments]
        done = started.run(command, cwd=self.path, text=True, errors="backslashreplace")
        return "" if done.returncode == 0 else f"{' '.join(command)}\n{done.stdout}{done.stderr}"

    def compiled(self, source: str, *flags: str) -> "List[str]":
        """Return the arguments that compile a file of the folder with some flags."""
        includes = os.path.join(os.path.dirname(torch.__file__), "include")
        return [*STANDARD, *flags, "-I.", "-isystem", includes, "-c", str(self.path / source)]


def build(recipe: "Dict[str, Any]", names: str, folder: Folder) -> bytes:
    """Return the library of a kernel.

    Args:
        recipe: the sources and the flags.
        names: the C++ that gives the library its names.
        folder: where to build.

    Raises:
        RuntimeError: what the compiler says.
    """
    passes, binding, kernel = recipe["cpp_sources"]
    threads = inlined(THREADS, header)
    written = {"main.cpp": threads + kernel, "binding.cpp": binding}
    written = {name: "\n".join((names, passes, text)) for name, text in written.items()}
    for name, text in {**written, **recipe["headers"]}.items():
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / name).write_text(text, encoding="utf-8")
    told = _compile(folder, recipe["extra_cflags"])
    if told:
        accepted = tools.accepted(recipe["extra_cflags"], folder.words, str(folder.path))
        told = _compile(folder, accepted) if accepted != recipe["extra_cflags"] else told
    told = told or folder.run(
        "-shared", "main.o", "binding.o", "-Wl,--no-as-needed", PYTORCH, "-o", "made.so"
    )
    if told:
        raise RuntimeError(told)
    return (folder.path / "made.so").read_bytes()


def _compile(folder: Folder, flags: "List[str]") -> str:
    """Make what is linked, and return what the compiler says if it fails."""
    named = ["-shared", f"-Wl,-soname,{PYTORCH}", "-o", PYTORCH]
    named += ["-x", "assembler", os.devnull, "-x", "none"]
    commands = [
        folder.compiled("main.cpp", *flags),
        folder.compiled("binding.cpp", *flags, LEVEL),
        named,
    ]
    made = [*together.each(lambda command: folder.run(*command), commands, folder.most)]
    failed = [outcome for _, outcome in made if isinstance(outcome, Exception)]
    if failed:
        raise failed[0]
    return "".join(outcome for _, outcome in made)
