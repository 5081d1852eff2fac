"""All files of a repository, and the changes that a folder needs to be one."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusegen.compiler.pipeline import Compiled
from fusegen.core.access import refused
from fusegen.core.digest import digest
from fusegen.core.write import Change, changes, removal
from fusegen.errors import Edited, NotAKernelName, NotALayer, NotARepository, Span, TwoOfOneName
from fusegen.project.package_folder import require_distinct
from fusegen.tools.hub import card, layer_classes, licence, package

LIST = "FILES.txt"
HEAD = "# The files that 'fusegen hub' wrote into this folder, with their SHA-256. DO NOT EDIT.\n"
LINE = re.compile(
    r"(?P<sha256>[0-9a-f]{64})  (?P<path>[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)*)", re.ASCII
)
BACKENDS = ("cpu", "cuda")  # a variant each, for a PyTorch with CUDA and one without
NAME = re.compile("[a-z][a-z0-9-]{0,62}[a-z0-9]")  # that `kernels` takes
LAYERS = "layers"  # the module of the layers


@dataclass(frozen=True)
class Repository:
    """The content of a repository."""

    folder: Path  # its path, whose last part is its name
    version: int  # the major version of its interface
    every: Sequence[Compiled]  # the specs after all stages
    modules: Path  # the folder of the modules that have the certificates

    @property
    def name(self) -> str:
        """The name as `kernels` takes it.

        Raises:
            NotAKernelName: `kernels` would refuse it.
        """
        found = self.folder.absolute().name.replace("_", "-")
        if not NAME.fullmatch(found) or found == LAYERS:
            raise NotAKernelName(Span(self.folder.as_posix()), name=self.folder.absolute().name)
        return found

    def files(self) -> dict[str, str]:
        """Return the texts of all files, by path from the folder; sorted.

        Raises:
            NotAKernelName: of the folder.
            NotALayer, TwoOfOneName, TwoOfOneExport: of a spec.
        """
        _require_names(self.every)
        exported = {each.spec.name: layer_classes.names(each.spec) for each in self.every}
        require_distinct(Span(self.folder.as_posix()), exported)
        shown = card.text(self.name, self.version, self.every, self.modules)
        found = {"README.md": shown, "LICENSE": licence.TEXT}
        common = package.files(self.every)
        for backend in BACKENDS:
            found.update(
                {f"build/torch-{backend}/{path}": text for path, text in self._variant(backend, common)}
            )
        found[LIST] = HEAD + "".join(f"{digest(text)}  {path}\n" for path, text in sorted(found.items()))
        return dict(sorted(found.items()))

    def _variant(self, backend: str, common: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the files of a variant, by path."""
        python = self.name.replace("-", "_")
        module = package.identifier(python, backend, common)
        files = {**common, f"{python}/__init__.py": package.older(module)}
        yield from files.items()
        yield "metadata.json", package.metadata(self.name, self.version, backend, module, files)


def planned(repository: Repository) -> tuple[Change, ...]:
    """Return the changes that make a folder the repository; in the order of their application.

    Files that `hub` did not write are left alone. The list of a new folder is written first, and that of
    another last, so that an interrupted command can be run again.

    Raises:
        NotARepository: the folder has files and no list of `fusegen hub`, or a file that is in the way, or
            a link in place of a folder.
        Edited: a file that would be replaced is neither as the list says nor as it should be.
        NoAccess: a file cannot be read.
    """
    texts = {repository.folder / path: text for path, text in repository.files().items()}
    owned = _owned(repository.folder)
    for path in sorted({*texts, *owned}):
        _require_no_link(path, repository.folder)
    for path, text in texts.items():
        _require_replaceable(path, text, owned)
    gone = (path for path, sha256 in owned.items() if path not in texts and _holds(path, sha256))
    place = repository.folder / LIST
    listed = changes({place: texts.pop(place)})
    return (*changes(texts), *map(removal, gone), *listed) if owned else (*listed, *changes(texts))


def _require_no_link(path: Path, folder: Path) -> None:
    """Refuse a path that leads through a link below the folder, and so may lead out of it."""
    for parent in path.parents[: len(path.relative_to(folder).parts) - 1]:
        if parent.is_symlink():
            raise NotARepository(Span(parent.as_posix()))


def _require_replaceable(path: Path, text: str, owned: Mapping[Path, str]) -> None:
    """Refuse to replace a file that somebody else wrote or changed."""
    if not os.path.lexists(path) or path.name == LIST or _holds(path, digest(text)):
        return
    if path not in owned or path.is_symlink() or not path.is_file():
        raise NotARepository(Span(path.as_posix()))
    if not _holds(path, owned[path]):
        raise Edited(Span(path.as_posix()))


def _owned(folder: Path) -> dict[Path, str]:
    """Return the digests of the files that the list of a folder has, and its own; none without a folder."""
    place = folder / LIST
    try:
        if not folder.exists() or not any(folder.iterdir()):
            return {}
        text = place.read_text(encoding="utf-8", errors="replace") if place.is_file() else ""
    except OSError as error:
        raise refused(error, folder, "read") from None
    if not text.startswith(HEAD):
        raise NotARepository(Span(folder.as_posix()))
    found = (LINE.fullmatch(line) for line in text.splitlines()[1:])
    return {place: "", **{folder / each["path"]: each["sha256"] for each in found if each}}


def _holds(path: Path, sha256: str) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    try:
        return digest(path.read_bytes()) == sha256
    except OSError as error:
        raise refused(error, path, "read") from None


def _require_names(every: Sequence[Compiled]) -> None:
    first: dict[str, Compiled] = {}
    for each in every:
        spec = each.spec
        if spec.name == LAYERS:
            raise NotALayer(spec.span, name=spec.name, what="the name of the module of the layers")
        if spec.name in first:
            held = first[spec.name].spec.span.file
            raise TwoOfOneName(
                spec.span, name=spec.name, first=held, module=f"{package.KERNELS}/{spec.name}.py"
            )
        first[spec.name] = each
