"""The modules that were built, imported from where they were written."""

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType

from fusegen.codegen import runtime_text
from fusegen.codegen.printed import Binding
from fusegen.compiler.pipeline import Compiled
from fusegen.compiler.row_kernels import CompiledRows
from fusegen.compiler.window_kernels import CompiledWindows
from fusegen.core import manifest
from fusegen.core.digest import digest
from fusegen.errors import NotBuilt, Span
from fusegen.project import build

NUMBERS = itertools.count()


def built(compiled: Compiled | CompiledRows | CompiledWindows, output: Path) -> ModuleType:
    """Return the module of a spec.

    Raises:
        NotBuilt: there is no such module, or it is not what the spec says.
    """
    name = compiled.place
    path = compiled.module(output)
    binding = manifest.read(output).binding
    module = build.module(compiled, Binding(binding))
    runtime = runtime_text.needed(binding, (module,)).items()
    texts = {path: module, **{output / runtime_text.FOLDER / name: text for name, text in runtime}}
    if any(not each.exists() or each.read_text(encoding="utf-8") != text for each, text in texts.items()):
        raise NotBuilt(Span(path.as_posix()), name=name)
    return imported(path)


def imported(path: Path) -> ModuleType:
    """A file as a module, run again each time, under a name of its own, which torch.compile looks up."""
    package = _package(path.parent, root(path))
    found = importlib.util.spec_from_file_location(f"{package}.{path.stem}_{next(NUMBERS)}", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


def root(path: Path) -> Path:
    """The folder of modules that a module belongs to: that which has its runtime, or else its own."""
    above = (folder for folder in path.parents if (folder / runtime_text.FOLDER).is_dir())
    return next(above, path.parent)


def _package(folder: Path, root: Path) -> str:
    """The name of a package of a folder's modules, in which they find their runtime, in the root's."""
    name = "fusegen_built_" + digest(str(root.resolve()), 16)
    if folder != root:
        name = f"{_package(folder.parent, root)}.{folder.name}"
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [str(folder.resolve())]
        sys.modules.setdefault(name, package)  # of two threads, the first one's stays
    return name
