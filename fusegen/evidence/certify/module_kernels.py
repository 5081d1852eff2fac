"""The kernels of a module, each with a certificate of its own, as if it were the module's only one.

A kernel in front of the last one has a title, by which its names in the module begin; the last has none.
"""

import ast
import re
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

from fusegen.codegen.render.whole import CONSTANTS, FUNCTIONS
from fusegen.core.kernel_order import title
from fusegen.core.spec import Spec

LAST = ""
NAMES = {*CONSTANTS, *FUNCTIONS}  # that a module of one kernel has for its parts


def titles(spec: Spec) -> tuple[str, ...]:
    """Return the titles of the kernels of a spec, in the order in which they run."""
    return (*(title(each, spec) for each in spec.kernels[:-1]), LAST)


def seen(module: ModuleType, of: str) -> Any:
    """Return a module in which `KERNELS` and `eager` are those of a kernel, by its title."""
    if not of:
        return module
    own = {_plain(name, of): held for name, held in vars(module).items() if _plain(name, of) != name}
    return SimpleNamespace(**{**vars(module), **own})


def text_of(module: str, spec: Spec, of: str) -> str:
    """Return the text of a module without that of the other kernels, and the names as in one of a kernel.

    A kernel in front has its imports and its own statements, as the class runs it for the last one.
    """
    if spec.front is None or not module:
        return module
    lines = module.splitlines(keepends=True)
    kept = []
    for statement in ast.parse(module).body:
        if isinstance(statement, ast.Import | ast.ImportFrom) or _title(statement, spec) == of:
            first = min(each.lineno for each in (statement, *getattr(statement, "decorator_list", ())))
            kept += lines[first - 1 : statement.end_lineno]
    return "".join(_renamed(kept, of))


def _title(statement: ast.stmt, spec: Spec) -> str:
    """Return the title of the kernel that a statement of a module belongs to."""
    match statement:
        case ast.Assign([ast.Name(name)]) | ast.FunctionDef(name):
            fronts = (each for each in titles(spec) if each)
            return next((each for each in fronts if _is_of(name, each, spec)), LAST)
    return LAST


def _is_of(name: str, of: str, spec: Spec) -> bool:
    """Return True if a name of a module is of a kernel in front, by its title."""
    return _plain(name, of) != name or name.lstrip("_") == f"{spec.name}_{of}"


def _plain(name: str, of: str) -> str:
    """Return a name of a kernel in front as it is in a module of one kernel; other names as they are."""
    own = name.removeprefix(f"{of}_" if name.islower() else f"{of.upper()}_")
    return own if own in NAMES else name


def _renamed(lines: list[str], of: str) -> Iterator[str]:
    """Yield lines in which the names of a kernel are those in a module of one."""
    named = re.compile(rf"\b({re.escape(of)}|{re.escape(of.upper())})_\w+") if of else None
    yield from (named.sub(lambda found: _plain(found[0], of), line) if named else line for line in lines)
