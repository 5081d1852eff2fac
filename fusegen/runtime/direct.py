"""The build of a library for the CPU by calls of the C++ compiler only, without ninja, side by side.

A kernel and its binding are compiled by calls of their own, side by side where one library has both. The
binding computes no element and is hardly optimised. The library names PyTorch's, which is loaded: a linker
would read its symbols for a third of a second.
"""

import os
import pathlib
from typing import Any, Dict, List

import torch

from . import started, together, tools
from .headers import inlined
from .sources import header

STANDARD = ["-std=c++17", "-fPIC"]
# -O3 of the binding takes a second longer, and a call as long; bindings of one process may have equal names
OWN: "Dict[str, List[str]]" = {"binding": ["-O1", "-fvisibility=hidden"], "main": []}
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
    passes, *texts = recipe["cpp_sources"]
    threads = {"main": inlined(THREADS, header)}
    written = {
        f"{name}.cpp": "\n".join((names, passes, threads.get(name, "") + text))
        for name, text in zip(recipe["files"], texts)
    }
    for name, text in {**written, **recipe["headers"]}.items():
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / name).write_text(text, encoding="utf-8")
    files, flags = recipe["files"], recipe["extra_cflags"]
    told = _compile(folder, files, flags)
    if told:
        accepted = tools.accepted(flags, folder.words, str(folder.path))
        told = _compile(folder, files, accepted) if accepted != flags else told
    objects = (f"{name}.o" for name in files)
    told = told or folder.run("-shared", *objects, "-Wl,--no-as-needed", PYTORCH, "-o", "made.so")
    if told:
        raise RuntimeError(told)
    return (folder.path / "made.so").read_bytes()


def _compile(folder: Folder, files: "List[str]", flags: "List[str]") -> str:
    """Make what is linked, and return what the compiler says if it fails."""
    named = ["-shared", f"-Wl,-soname,{PYTORCH}", "-o", PYTORCH]
    named += ["-x", "assembler", os.devnull, "-x", "none"]
    commands = [folder.compiled(f"{name}.cpp", *flags, *OWN[name]) for name in files] + [named]
    made = [*together.each(lambda command: folder.run(*command), commands, folder.most)]
    failed = [outcome for _, outcome in made if isinstance(outcome, Exception)]
    if failed:
        raise failed[0]
    return "".join(outcome for _, outcome in made)
