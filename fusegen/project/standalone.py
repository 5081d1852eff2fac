"""Modules in one file each, which need nothing beside them and run through `exec`, without `__file__`."""

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

from fusegen.codegen import render, runtime_text
from fusegen.codegen.standalone import file_parts, kinds
from fusegen.core.dtypes import ELEMENTS

IMPORTS = re.compile(r"^from \.+_runtime import (?P<names>.+)\n", re.MULTILINE)
NONE: Mapping[str, str] = MappingProxyType({})
TORCH = "import torch\n"
LIBRARIES = "import contextlib\nimport hashlib\nimport importlib.abc\nimport importlib.util\nimport sys\n\n"


def text(
    module: str,
    binding: str,
    dtypes: Collection[str] = tuple(ELEMENTS),
    apart: Mapping[str, str] = NONE,
) -> str:
    """Return the standalone file of a module.

    It has what is used; one for pybind11, or of a kind without a form of its own, has the runtime inside.

    Args:
        module: the text beside a runtime.
        binding: of the kernels.
        dtypes: that the file takes.
        apart: the text of a module of each kernel alone, by its name, where there are several.
    """
    context = kinds.context_of(apart or {"": module}, dtypes) if binding == "stable" else None
    return _with_runtime(module, binding) if context is None else file_parts.filled_in(context)


def _with_runtime(module: str, binding: str) -> str:
    [found] = IMPORTS.finditer(module)
    names = found["names"].split(", ")
    files = runtime_text.files(binding)
    python = runtime_text.python(files)
    own = {name: files[f"include/{name}"] for name in runtime_text.every_header(module, binding, files)}
    assert not any("'''" in part for part in (*python.values(), *own.values()))
    words = "(" + ", ".join(f'"{name}"' for name in names) + ")"
    context = {"files": python.items(), "headers": own.items(), "names": names, "words": words}
    loader = render.fill("standalone.py.j2", context)
    joined = module[: found.start()] + loader + module[found.end() :]
    return file_parts.MADE.sub(r"\1 --standalone . ", joined.replace(TORCH, LIBRARIES + TORCH, 1), count=1)
