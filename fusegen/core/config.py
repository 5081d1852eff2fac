"""`[tool.fusegen]` of pyproject.toml: the folders of a project, and what its modules have in common."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusegen.core.manifest import BINDINGS
from fusegen.errors import BadConfig, FusegenError, Span, SpecErrors, nearest, toml_place

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE, TABLE = "pyproject.toml", "fusegen"
NAMESPACE = "fusegen"
POLICIES = ("auto", "kernel", "decompose")
MOST_BYTES = 2**22  # of a file that is read
IDENTIFIER = re.compile("[a-z][a-z0-9_]{0,31}")


@dataclass(frozen=True)
class Config:
    """The configuration of a project."""

    # the folder of pyproject.toml; the working folder without one. This path and the others are relative to
    # the working folder
    root: Path = Path()
    specs: Path = Path("specs")  # the folder of the specs
    output: Path = Path("generated")  # the folder of the modules
    # the folder whose subfolders are those of the modules; --specs may name one of them
    base: Path = Path("specs")
    binding: str | None = None  # of a new folder of modules; PyTorch's stable ABI if there is none
    namespace: str = NAMESPACE  # the first word of the namespaces of operators
    policy: str = POLICIES[0]  # of modules under torch.compile


_IN_USE: ContextVar[Config | None] = ContextVar("config", default=None)


def current() -> Config:
    """Return the configuration in use."""
    return _IN_USE.get() or Config()


def use(config: Config) -> None:
    """Use a configuration from now on."""
    _IN_USE.set(config)


def found(start: Path) -> Config:
    """Return the configuration of the project that a folder belongs to: of the nearest file that has one.

    Raises:
        SpecErrors: every mistake in it.
    """
    here = Path(os.path.abspath(start))
    for folder in (here, *here.parents):
        table = _table(folder / FILE)
        if table is not None:
            return _config(here, folder, table)
        if (folder / ".git").exists():
            break
    return Config()


def _table(path: Path) -> Mapping[str, Any] | None:
    """Return the table of a file, if it has one."""
    text = _text(path)
    if TABLE.encode() not in text:
        return None
    try:
        if len(text) > MOST_BYTES:
            raise ValueError(f"the file is larger than {MOST_BYTES:,} bytes")
        tools = tomllib.loads(text.decode("utf-8")).get("tool", {})
    except (ValueError, RecursionError) as error:
        why = str(error).splitlines()[0] if isinstance(error, ValueError) else "it is nested too deeply"
        span, why = toml_place(_shown(path), why, text.decode("utf-8", errors="replace"))
        raise SpecErrors([BadConfig(span, why=f"this is not TOML: {why}", near="")]) from None
    table = tools.get(TABLE) if isinstance(tools, dict) else None
    if table is not None and not isinstance(table, dict):
        span = _place(path, "tool", TABLE)
        raise SpecErrors([BadConfig(span, why=f"[tool.{TABLE}] is not a table", near="")])
    return table


def _place(path: Path, table: str, key: str) -> Span:
    """Return the place of a key below the header of a table; else that of the header, or the file."""
    header = re.compile(r"\s*\[\s*" + re.escape(table).replace(r"\.", r"\s*\.\s*") + r"\s*\]")
    wanted = re.compile(rf"""\s*(["']?){re.escape(key)}\1\s*=""")
    span = Span(_shown(path))
    for number, line in enumerate(_text(path).decode("utf-8").split("\n"), 1):
        here = Span(span.file, number, len(line) - len(line.lstrip()) + 1, line)
        if header.match(line):
            span = here
        elif span.line and wanted.match(line):
            return here
        elif span.line and line.lstrip().startswith("["):
            break
    return span


def _text(path: Path) -> bytes:
    """Return the start of a plain file; nothing of what is none, or cannot be read."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError:
        return b""


def _config(here: Path, folder: Path, table: Mapping[str, Any]) -> Config:
    """Return the configuration of a table.

    Raises:
        SpecErrors: every mistake in it.
    """
    errors: list[FusegenError] = []
    for key, value in table.items():
        span = _place(folder / FILE, f"tool.{TABLE}", key)
        if key not in KEYS:
            near = nearest(key, KEYS, f"it has {', '.join(KEYS)}")
            errors.append(BadConfig(span, why=f"[tool.{TABLE}] has no key {key!r}", near=near))
        elif why := KEYS[key](value, folder):
            errors.append(BadConfig(span, why=f"{key} = {value!r}: {why}", near=""))
    if errors:
        raise SpecErrors(errors)
    below = {key: folder / table.get(key, default) for key, default in FOLDERS.items()}
    folders = {key: Path(os.path.relpath(path, here)) for key, path in below.items()}
    default = Config()
    return Config(
        Path(os.path.relpath(folder, here)),
        folders["specs"],
        folders["output"],
        folders["specs"],
        *(table.get(key, getattr(default, key)) for key in ("binding", "namespace", "policy")),
    )


def _folder(value: Any, folder: Path) -> str:
    """Return the reason why a value is no folder of the project; empty if it is one."""
    if not isinstance(value, str) or not value:
        return "it has to be the path of a folder"
    if "\0" in value:
        return "it has to be the path of a folder"
    whole = os.path.realpath(folder / value)
    inside = Path(whole).is_relative_to(os.path.realpath(folder))
    return "" if inside and not os.path.isabs(value) else "it has to be a folder of the project"


def _one_of(*values: str) -> Callable[[Any, Path], str]:
    return lambda value, folder: "" if value in values else f"it has to be one of {', '.join(values)}"


def _identifier(value: Any, folder: Path) -> str:
    right = isinstance(value, str) and IDENTIFIER.fullmatch(value) and "__" not in value
    return "" if right else "it has to be a word of lower-case letters, digits and single underscores"


def _shown(path: Path) -> str:
    return Path(os.path.relpath(path)).as_posix()


FOLDERS = {"specs": "specs", "output": "generated"}
KEYS: dict[str, Callable[[Any, Path], str]] = {  # by key, the reason why a value is wrong
    **dict.fromkeys(FOLDERS, _folder),
    "binding": _one_of(*BINDINGS),
    "namespace": _identifier,
    "policy": _one_of(*POLICIES),
}
