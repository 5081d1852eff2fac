"""Modules in one file each, which need nothing beside them and run through `exec`, without `__file__`."""

import re
from collections.abc import Collection

from fusegen.codegen import render, runtime_text
from fusegen.codegen.standalone import channel_file, part_file, row_file, scan_file, window_file
from fusegen.codegen.standalone import text as printed
from fusegen.core.dtypes import ELEMENTS

WHOLE = (
    "KERNELS = Rows(",
    "KERNELS = Parts(",
    "KERNELS = Windows(",
    "KERNELS = Channels(",
    "_KERNELS = Activation(",
    "_KERNELS = Dropouts(",
    '#include "cuda/thin_launch.cuh"',
)  # in a module of rows, of several kernels, of a thin convolution
IMPORTS = re.compile(r"^from \.+_runtime import (?P<names>.+)\n", re.MULTILINE)
TORCH = "import torch\n"
LIBRARIES = "import contextlib\nimport hashlib\nimport importlib.abc\nimport importlib.util\nimport sys\n\n"


def text(module: str, binding: str, dtypes: Collection[str] = tuple(ELEMENTS)) -> str:
    """Return the standalone file of a module's text beside a runtime, for some dtypes.

    It has what is used; one of `WHOLE`, or for pybind11, has the runtime inside.
    """
    files = (
        (row_file.is_light, row_file.file),
        (scan_file.is_light, scan_file.file),
        (window_file.is_light, window_file.file),
        (channel_file.is_light, channel_file.file),
        (part_file.is_light, part_file.file),
    )
    for is_light, file in files:
        if binding == "stable" and is_light(module):
            return file(module, dtypes)
    whole = binding != "stable" or any(part in module for part in WHOLE)
    return _with_runtime(module, binding) if whole else printed.text(module, dtypes)


def _with_runtime(module: str, binding: str) -> str:
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
    return printed.MADE.sub(r"\1 --standalone . ", whole.replace(TORCH, LIBRARIES + TORCH, 1), count=1)
