"""Specs on disk: found by path or by name, read once, with those that come with fusegen underneath."""

import keyword
import os
import re
import shlex
from importlib import resources
from pathlib import Path, PurePosixPath

from fusegen.core import config
from fusegen.core.spec import NAME_PATTERN, Spec
from fusegen.errors import FusegenError, NoSuchSpec, SeveralOfOneName, Span, SpecErrors, Unreadable, nearest
from fusegen.language.parse import parse_spec, read_text

FOLDER = "specs"
ENDINGS = (".yaml", ".yml")
MAX_NAME = 64


class Library:
    """The specs of a folder, over those that come with fusegen; each is read once."""

    def __init__(self, folder: Path) -> None:
        """Look in `folder` first."""
        self.folders = (folder, shipped())
        self.read: dict[str, Spec | None] = {}

    def __call__(self, name: str) -> Spec | None:
        """Return the spec of that name, or nothing."""
        if name not in self.read:
            path = self.path(name)
            self.read[name] = load(path) if path else None
        return self.read[name]

    def path(self, name: str) -> Path | None:
        """Return the file of the spec of that name, or nothing."""
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
        """Return the names of all specs, sorted."""
        return tuple(sorted({p.stem for folder in self.folders for p in folder.glob("*.yaml")}))


def shipped() -> Path:
    """Return the specs that come with fusegen: inside the installed package, or beside it in a checkout."""
    inside = Path(str(resources.files("fusegen"))) / FOLDER
    return inside if inside.is_dir() else inside.parent.parent / FOLDER


def place(path: Path) -> PurePosixPath:
    """Return the place of a spec's module in a folder of modules, without the ending.

    It is ``kernelbench/gate`` for ``specs/kernelbench/gate.yaml``, below the project's folder of specs or
    fusegen's. A spec elsewhere, or in a folder that cannot be a package, has its name only.

    Args:
        path: the file of the spec.
    """
    whole = Path(os.path.abspath(path))
    for root in (Path(os.path.abspath(config.current().base)), shipped()):
        if whole.is_relative_to(root):
            below = whole.relative_to(root)
            if all(map(_is_package, below.parts[:-1])):
                return PurePosixPath(*below.parts[:-1], path.stem)
    return PurePosixPath(path.stem)


def origin(path: Path) -> str:
    """Return the word by which `build` finds a spec again in the project: a path from its root, or a name.

    Args:
        path: the file of the spec; one outside the project and fusegen has none.
    """
    whole, root = Path(os.path.abspath(path)), Path(os.path.abspath(config.current().root))
    below = whole.relative_to(root).as_posix() if whole.is_relative_to(root) else ""
    if shlex.quote(below) == below and not below.startswith("-"):
        return below
    name = f"{place(path)}.yaml"
    found = (folder / name for folder in (config.current().specs, shipped()) if (folder / name).is_file())
    same = Path(os.path.abspath(next(found, root))) == whole
    return name.removesuffix(".yaml") if same else ""


def above(folder: Path) -> tuple[Path, ...]:
    """Return a folder of specs, and those above it up to the folder of all specs of the project."""
    depth = len(place(folder / "a").parts)
    return (folder, *folder.parents)[:depth]


def every(folder: Path) -> tuple[Path, ...]:
    """The specs of a folder, then those of its subfolders, each sorted; a subfolder can be a package."""
    found = (path.relative_to(folder) for path in folder.rglob("*.yaml"))
    kept = (path for path in found if all(map(_is_package, path.parts[:-1])))
    return tuple(folder / path for path in sorted(kept, key=lambda path: (path.parts[:-1], path.name)))


def _is_package(name: str) -> bool:
    return bool(re.fullmatch(NAME_PATTERN, name)) and not keyword.iskeyword(name)


def load(path: Path) -> Spec:
    """Return the spec in a file.

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
    """Return the files that a user means by some paths or names; by none, every spec below the folder.

    Raises:
        NoSuchSpec: something has no such name.
        SeveralOfOneName: specs in several subfolders have it.
        Unreadable: the folder holds no spec.
    """
    if named:
        return tuple(dict.fromkeys(find(name, folder) for name in named))
    paths = every(folder)
    if not paths:
        remedy = "run fusegen in the folder above specs/, set 'specs' in [tool.fusegen], or name a spec"
        raise Unreadable(Span(folder.as_posix()), why="there are no specs here", remedy=remedy)
    return paths


def find(named: str, folder: Path) -> Path:
    """Return the file that a user means by a path, or by the name of a spec, with its subfolder or without.

    Raises:
        NoSuchSpec: nothing has that name.
        SeveralOfOneName: specs in several subfolders have it, and none in the folder itself.
    """
    if named.endswith(ENDINGS) or os.path.lexists(named):
        from_root = config.current().root / named  # as in the header of a module
        return from_root if not os.path.lexists(named) and os.path.isfile(from_root) else Path(named)
    roots = tuple(dict.fromkeys((folder, shipped())))
    known = {root: every(root) for root in roots}
    for root, paths in known.items():
        whole = root / f"{named}.yaml"
        found = [whole] if whole in paths else [path for path in paths if path.stem == named]
        if len(found) > 1:
            places = " and ".join(path.as_posix() for path in found)
            raise SeveralOfOneName(Span(named), name=named, places=places)
        if found:
            return found[0]
    if "/" in named:
        return Path(named)
    names = {path.stem for paths in known.values() for path in paths}
    near = nearest(named, names, "'fusegen list' shows the specs; a path works too")
    raise NoSuchSpec(Span(named), name=named, near=near)
