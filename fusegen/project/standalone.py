"""Modules in one file each, with the runtime inside: they run through `exec`, without `__file__`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping

from fusegen.codegen import render, runtime_text
from fusegen.core import header_files

IMPORTS = re.compile(r"^from \.+_runtime import (?P<names>.+)\n", re.MULTILINE)
TORCH = "import torch\n"
BINDINGS = {  # further headers of the stable binding, by the header of a module's C++ that needs it
    "cuda/channels_last.cuh": "stable_abi_transposed.h",
    "cuda/thin_launch.cuh": "stable_abi_convolved.h",
}
HEADERS = {  # of the bindings
    "stable": ("stable_abi_bitmask.h", "stable_abi_names.h"), "pybind": ("pybind.h", "names.h"),
}  # fmt: skip
PROGRAM = ("nvrtc/standard.h", "nvrtc/kernels.cuh")  # around a module that NVRTC compiles
LIBRARIES = "import contextlib\nimport hashlib\nimport importlib.abc\nimport importlib.util\nimport sys\n\n"
Statements = Callable[[str], Iterable[ast.AST]]
MADE = re.compile(r"^(# Spec \w+\. Remake it with: python -m fusegen build) ", re.MULTILINE)


def text(module: str, binding: str) -> str:
    """Return a module's text with the runtime inside.

    Args:
        module: its text beside a runtime.
        binding: its binding.
    """
    [found] = IMPORTS.finditer(module)
    names = found["names"].split(", ")
    files = runtime_text.files(binding)
    python, own = reached(files), headers_of(module, binding, files)
    assert not any("'''" in part for part in (*python.values(), *own.values()))
    words = "(" + ", ".join(f'"{name}"' for name in names) + ")"
    context = {"files": python.items(), "headers": own.items(), "names": names, "words": words}
    loader = render.fill("standalone.py.j2", context)
    whole = module[: found.start()] + loader + module[found.end() :]
    return MADE.sub(r"\1 --standalone . ", whole.replace(TORCH, LIBRARIES + TORCH, 1), count=1)


def headers_of(module: str, binding: str, files: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that a module's C++ and its binding reach, by name; sorted."""
    named = header_files.INCLUDE.findall(module) if binding == "stable" else []
    bound = (*HEADERS[binding], *(BINDINGS[name] for name in named if name in BINDINGS))
    includes = "".join(f'#include "{name}"\n' for name in bound) + module
    found = set(header_files.reached(includes, lambda name: files[f"include/{name}"]))
    instead = {f"nvrtc/{name.rpartition('/')[2]}" for name in found}
    found |= {name for name in instead if f"include/{name}" in files}
    return {name: files[f"include/{name}"] for name in sorted(found | set(PROGRAM))}


def reached(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a runtime that its first one needs, by module.

    Each comes behind those that it imports when it is run, the first one behind these and before those
    that functions import.
    """
    known = {name.removesuffix(".py"): text for name, text in files.items() if name.endswith(".py")}
    order: dict[str, None] = {}

    def follow(name: str, statements: Statements) -> None:
        for other in sorted(_imported(statements(known[name])) & known.keys() - order.keys()):
            if other not in order:
                follow(other, statements)
        order[name] = None

    follow("__init__", lambda text: ast.parse(text).body)
    for name in [*order]:
        for other in sorted(_imported(ast.walk(ast.parse(known[name]))) & known.keys() - order.keys()):
            follow(other, lambda text: ast.walk(ast.parse(text)))
    return {name: known[name] for name in order}


def _imported(statements: Iterable[ast.AST]) -> set[str]:
    """Return the files that some statements import from their own folder."""
    found: set[str] = set()
    for node in statements:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            found |= {node.module} if node.module else {alias.name for alias in node.names}
    return found
