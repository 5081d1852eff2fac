"""The folder of the modules: what it owns by its manifest, and what of that no known spec makes."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fusegen import manifest
from fusegen.access import refused
from fusegen.library import shipped
from fusegen.manifest import Entry
from fusegen.write import Change, changes

OF_FUSEGEN = "fusegen:"  # before the name of a spec that comes with fusegen
CERTIFICATE = ".certificate.json"
COMPLAINTS = {  # by whether the spec is known, and whether the module was changed by hand
    (True, False): "",
    (True, True): "{path}: it was changed after it was written; run 'python -m fusegen build {spec}'",
    (False, False): "{path}: no spec makes this module; 'python -m fusegen build --prune' removes it",
    (False, True): "{path}: no spec makes this module, and it was changed after it was written; delete it",
}


@dataclass(frozen=True)
class Outputs:
    """A folder of modules.

    Attributes:
        folder: its path.
        owned: the modules that its manifest says fusegen wrote, by name.
        specs: the folder of the project's specs.
    """

    folder: Path
    owned: Mapping[str, Entry]
    specs: Path

    def path(self, name: str) -> Path:
        """The file of a module."""
        return self.folder / f"{name}.py"

    @cached_property
    def present(self) -> dict[str, str]:
        """The digests of the owned modules that exist.

        Raises:
            NoAccess: one cannot be read.
        """
        found = {}
        for path in map(self.path, self.owned):
            try:
                if path.is_file():
                    found[path.stem] = manifest.digest(path.read_bytes())
            except OSError as error:
                raise refused(error, path, "read") from None
        return found

    def removable(self, made: Container[Path]) -> tuple[Path, ...]:
        """The owned modules that no known spec makes, as they were written; sorted.

        Args:
            made: the modules that a spec makes.
        """
        return tuple(
            self.path(name)
            for name in sorted(self.present)
            if self.path(name) not in made and not self._known(name) and not self._edited(name)
        )

    def complaints(self, made: Container[Path]) -> tuple[str, ...]:
        """A sentence for each owned module that no known spec makes, or that was changed by hand; sorted.

        Args:
            made: the modules that a spec makes, of which nothing is said.
        """
        told = []
        for name in sorted(self.present):
            sentence = COMPLAINTS[self._known(name), self._edited(name)]
            if sentence and self.path(name) not in made:
                told.append(sentence.format(path=self.path(name), spec=self._spec(name)))
        return tuple(told)

    def manifest(self, texts: Mapping[Path, str], specs: Iterable[Path]) -> tuple[Change, ...]:
        """The change of the manifest, if any: it lists the owned modules that exist, and those written.

        Args:
            texts: what is written, by path.
            specs: the files of their specs.
        """
        entries = {name: self.owned[name] for name in self.present}
        sources = {path.stem: self._source(path) for path in specs}
        for path, text in texts.items():
            entries[path.stem] = Entry(sources[path.stem], manifest.digest(text.encode("utf-8")))
        return changes({self.folder / manifest.NAME: manifest.text(entries)})

    def uncertified(self) -> tuple[Path, ...]:
        """The certificates in the folder without a module, sorted."""
        found = sorted(self.folder.glob(f"*{CERTIFICATE}"))
        return tuple(path for path in found if not self.path(path.name.removesuffix(CERTIFICATE)).exists())

    def _edited(self, name: str) -> bool:
        return self.present[name] != self.owned[name].sha256

    def _known(self, name: str) -> bool:
        """Whether the spec lies in the project's folder, where the manifest says, or among fusegen's."""
        places = [self.specs / f"{name}.yaml", self.folder / self.owned[name].spec]
        if self.owned[name].spec == OF_FUSEGEN + name:
            places.append(shipped() / f"{name}.yaml")
        return any(place.is_file() for place in places)

    def _spec(self, name: str) -> str:
        """How a person names the spec of an owned module."""
        recorded = self.owned[name].spec
        here = recorded == OF_FUSEGEN + name or (self.specs / f"{name}.yaml").is_file()
        return name if here else os.path.normpath(self.folder / recorded)

    def _source(self, spec: Path) -> str:
        """The path of a spec from the folder, without links, or the name of one of fusegen's."""
        if spec.parent == shipped():
            return OF_FUSEGEN + spec.stem
        return Path(os.path.relpath(spec.resolve(), self.folder.resolve())).as_posix()


def opened(folder: Path, specs: Path) -> Outputs:
    """A folder with its manifest.

    Raises:
        BadManifest: its manifest is another tool's.
        NoAccess: the manifest cannot be read.
    """
    return Outputs(folder, manifest.read(folder), specs)
