"""Specs on disk: found by path or by name, read once, with those that come with fusegen underneath."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from fusegen.errors import FusegenError, NoSuchSpec, Span, SpecErrors, Unreadable, nearest
from fusegen.parse import parse_spec, read_text
from fusegen.spec import Spec

FOLDER = "specs"
MAX_NAME = 64


class Library:
    """The specs of a folder, over those that come with fusegen; each is read once."""

    def __init__(self, folder: Path) -> None:
        """Look in `folder` first."""
        self.folders = (folder, shipped())
        self.read: dict[str, Spec | None] = {}

    def __call__(self, name: str) -> Spec | None:
        """The spec of that name, or nothing."""
        if name not in self.read:
            path = self.path(name)
            self.read[name] = load(path) if path else None
        return self.read[name]

    def path(self, name: str) -> Path | None:
        """The file of the spec of that name, or nothing."""
        candidates = (folder / f"{name}.yaml" for folder in self.folders)
        return next(
            (
                path
                for path in candidates
                if name.isidentifier() and len(name) <= MAX_NAME and path.is_file()
            ),
            None,
        )

    def names(self) -> tuple[str, ...]:
        """The names of all specs, sorted."""
        return tuple(sorted({p.stem for folder in self.folders for p in folder.glob("*.yaml")}))


def shipped() -> Path:
    """The specs that come with fusegen: inside the installed package, or beside it in a checkout."""
    inside = Path(str(resources.files("fusegen"))) / FOLDER
    return inside if inside.is_dir() else inside.parent.parent / FOLDER


def load(path: Path) -> Spec:
    """The spec in a file.

    Raises:
        SpecErrors: every mistake in it.
    """
    shown = path.as_posix()
    try:
        text = read_text(path, shown)
    except FusegenError as error:
        raise SpecErrors([error]) from None
    return parse_spec(text, shown)


def find_all(named: tuple[str, ...], folder: Path) -> tuple[Path, ...]:
    """The files that a user means by some paths or names; by none, every spec of the folder.

    Raises:
        NoSuchSpec: something has no such name.
        Unreadable: the folder holds no spec.
    """
    if named:
        return tuple(dict.fromkeys(find(name, folder) for name in named))
    paths = tuple(sorted(folder.glob("*.yaml")))
    if not paths:
        remedy = "run fusegen where specs/ is, or name a spec"
        raise Unreadable(Span(folder.as_posix()), why="there are no specs here", remedy=remedy)
    return paths


def find(named: str, folder: Path) -> Path:
    """The file that a user means by a path or by the name of a spec.

    Raises:
        NoSuchSpec: nothing has that name.
    """
    if "/" in named or named.endswith((".yaml", ".yml")) or os.path.lexists(named):
        return Path(named)
    library = Library(folder)
    path = library.path(named)
    if path is None:
        near = nearest(named, library.names(), "'fusegen list' shows the specs; a path works too")
        raise NoSuchSpec(Span(named), name=named, near=near)
    return path
