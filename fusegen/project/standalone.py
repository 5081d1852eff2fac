"""Modules in one file each, with the runtime inside: they run through `exec`, without `__file__`."""

from __future__ import annotations

import re

from fusegen.codegen import render, runtime_text

IMPORTS = re.compile(r"^from \.+_runtime import (?P<names>.+)\n", re.MULTILINE)
TORCH = "import torch\n"
LIBRARIES = "import contextlib\nimport hashlib\nimport importlib.abc\nimport importlib.util\nimport sys\n\n"
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
    python = runtime_text.python(files)
    own = {name: files[f"include/{name}"] for name in runtime_text.headers(module, binding, files)}
    assert not any("'''" in part for part in (*python.values(), *own.values()))
    words = "(" + ", ".join(f'"{name}"' for name in names) + ")"
    context = {"files": python.items(), "headers": own.items(), "names": names, "words": words}
    loader = render.fill("standalone.py.j2", context)
    whole = module[: found.start()] + loader + module[found.end() :]
    return MADE.sub(r"\1 --standalone . ", whole.replace(TORCH, LIBRARIES + TORCH, 1), count=1)
