"""The modules that were built, imported from where they were written."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType

from fusegen import build
from fusegen.errors import NotBuilt, Span
from fusegen.pipeline import Compiled

NUMBERS = itertools.count()


def built(compiled: Compiled, output: Path) -> ModuleType:
    """The module of a spec.

    Args:
        compiled: the spec.
        output: the folder of the modules.

    Raises:
        NotBuilt: there is no such module, or it is not what the spec says.
    """
    name = compiled.spec.name
    path = output / f"{name}.py"
    if not path.exists() or path.read_text(encoding="utf-8") != build.module(compiled):
        raise NotBuilt(Span(path.as_posix()), name=name)
    return imported(path)


def imported(path: Path) -> ModuleType:
    """A file as a module, run anew each time, under a name of its own, which torch.compile looks up."""
    found = importlib.util.spec_from_file_location(f"{__name__}.{path.stem}_{next(NUMBERS)}", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module
