"""The folder of the modules: what it owns by its manifest, and what of that no known spec makes."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from fusegen.codegen import runtime_text
from fusegen.core import config, manifest
from fusegen.core.access import refused
from fusegen.core.digest import digest
from fusegen.core.manifest import Entry, Kernels, Manifest
from fusegen.core.write import Change, changes, head, text_of
from fusegen.errors import HiddenModules, NotGenerated, OtherBinding, Span
from fusegen.language.library import place, shipped
from fusegen.project import runtime_folder

OF_FUSEGEN = "fusegen:"  # before the name of a spec that comes with fusegen
GENERATED = f"# {runtime_folder.GENERATED}"  # how a module begins
CERTIFICATE = ".certificate.txt"
COMPLAINTS = {  # by whether the spec is known, and whether the module was changed by hand
    (True, False): "",
    (True, True): "{path}: it was changed after it was written; run 'python -m fusegen build {spec}'",
    (False, False): "{path}: no spec makes this module; 'python -m fusegen build --prune' removes it",
    (False, True): "{path}: no spec makes this module, and it was changed after it was written; delete it",
}


@dataclass(frozen=True)
class Outputs:
    """A folder of modules."""

    folder: Path  # its path
    binding: str  # of its modules
    # the modules that its manifest says fusegen wrote, by name: the path from the folder
    owned: Mapping[str, Entry]
    specs: Path  # the folder of the project's specs
    # the digests of the files of its runtime, by name
    recorded: Mapping[str, str] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        """Return the file of a module."""
        return self.folder / f"{name}.py"

    def name(self, path: Path) -> str:
        """Return the name of a module, whose file lies below the folder."""
        return path.relative_to(self.folder).with_suffix("").as_posix()

    @cached_property
    def present(self) -> dict[str, str]:
        """The digests of the owned modules that exist.

        Raises:
            NoAccess: one cannot be read.
        """
        found = {}
        for name, path in ((name, self.path(name)) for name in self.owned):
            try:
                if path.is_file():
                    found[name] = digest(path.read_bytes())
            except OSError as error:
                raise refused(error, path, "read") from None
        return found

    def require_own(self, made: Iterable[Path]) -> None:
        """Refuse to write over a file that fusegen did not write, or to hide modules of a subfolder.

        Files that fusegen wrote are in the manifest, or begin as generated ones do. A module ``gate``
        beside a subfolder ``gate`` without an __init__.py is what Python imports under this name.

        Raises:
            NotGenerated: somebody else wrote a file of that name.
            HiddenModules: a module would have the name of a subfolder of modules.
            NoAccess: one cannot be read.
        """
        paths = {self.name(path): path for path in made}
        for name, path in paths.items():
            if name not in self.owned and path.exists() and not head(path).startswith(GENERATED):
                raise NotGenerated(Span(path.as_posix()))
        every = {*paths, *self.present}
        for folder in sorted({up.as_posix() for name in every for up in PurePosixPath(name).parents}):
            if folder in every:
                raise HiddenModules(Span(self.path(folder).as_posix()), folder=folder)

    def bound(self, binding: str | None, made: Container[Path]) -> Outputs:
        """Return the folder with another binding, if one is given, for modules about to be written.

        Raises:
            OtherBinding: it has modules of its own binding that are not written now.
        """
        others = binding not in (None, self.binding) and [
            n for n in self.present if self.path(n) not in made
        ]
        if others:
            span = Span(self.folder.as_posix())
            raise OtherBinding(span, binding=self.binding, name=min(others), other=binding)
        return replace(self, binding=binding or self.binding)

    def configured(self) -> Outputs:
        """The folder with the binding that its next build has: that of the configuration, if it has one."""
        return replace(self, binding=config.current().binding or self.binding)

    def runtime(self, made: Mapping[Path, str], gone: Container[Path] = ()) -> tuple[Change, ...]:
        """Return the changes of the runtime: the files that the modules left or written use, and no others.

        Raises:
            NotGenerated: somebody else wrote a file of that name.
            NoAccess: one cannot be read.
        """
        return runtime_folder.changed(self.folder, self._runtime(made, gone), self.recorded)

    def _runtime(self, made: Mapping[Path, str], gone: Container[Path] = ()) -> Mapping[str, str]:
        """The files that the runtime has to have, by name, as of `runtime`."""
        paths = (self.path(name) for name in self.present)
        kept = (text_of(path) for path in paths if path not in made and path not in gone)
        return runtime_text.needed(self.binding, (*made.values(), *kept))

    def removable(self, made: Container[Path]) -> tuple[Path, ...]:
        """Return the owned modules that no known spec makes, as they were written; sorted."""
        return tuple(
            self.path(name)
            for name in sorted(self.present)
            if self.path(name) not in made and not self._known(name) and not self._edited(name)
        )

    def complaints(self, made: Container[Path]) -> tuple[str, ...]:
        """Return a sentence for each owned module that no known spec makes or that was edited; sorted."""
        told = []
        for name in sorted(self.present):
            sentence = COMPLAINTS[self._known(name), self._edited(name)]
            if sentence and self.path(name) not in made:
                told.append(sentence.format(path=self.path(name), spec=self._spec(name)))
        return tuple(told)

    def kernels(self, path: Path) -> Kernels:
        """Return the digests of a module's kernels as it is; none if they are not known.

        They are known of modules that nobody changed since fusegen wrote them.
        """
        name = self.name(path)
        return self.owned[name].kernels if name in self.present and not self._edited(name) else {}

    def manifest(
        self, texts: Mapping[Path, str], specs: Iterable[Path], kernels: Mapping[Path, Kernels]
    ) -> tuple[Change, ...]:
        """The change of the manifest, if any: it lists the owned modules that exist, and those written."""
        entries = {name: self.owned[name] for name in self.present}
        sources = {place(path).as_posix(): self._source(path) for path in specs}
        for name, path in ((self.name(path), path) for path in texts):
            sha256 = digest(texts[path])
            entries[name] = Entry(sources[name], sha256, kernels[path])
        runtime = {name: digest(text) for name, text in self._runtime(texts).items()}
        whole = Manifest(entries, self.binding, runtime)
        return changes({self.folder / manifest.NAME: manifest.text(whole)})

    def uncertified(self) -> tuple[Path, ...]:
        """Return the certificates in the folder and below without a module, sorted."""
        found = sorted(self.folder.rglob(f"*{CERTIFICATE}"))
        modules = {path: path.with_name(f"{path.name.partition('.')[0]}.py") for path in found}
        return tuple(path for path, module in modules.items() if not module.exists())

    def _edited(self, name: str) -> bool:
        return self.present[name] != self.owned[name].sha256

    def _known(self, name: str) -> bool:
        """True if the spec lies in the project's folder, where the manifest says, or among fusegen's.

        A spec that moved to a subfolder makes another module.
        """
        paths = [self.specs / f"{name}.yaml", self.folder / self.owned[name].spec]
        if self.owned[name].spec == OF_FUSEGEN + name:
            paths.append(shipped() / f"{name}.yaml")
        return any(path.is_file() and place(path).as_posix() == name for path in paths)

    def _spec(self, name: str) -> str:
        """Return the spec of an owned module as a person names it."""
        recorded = self.owned[name].spec
        here = recorded == OF_FUSEGEN + name or (self.specs / f"{name}.yaml").is_file()
        return name if here else os.path.normpath(self.folder / recorded)

    def _source(self, spec: Path) -> str:
        """Return the path of a spec from the folder, without links, or the name of one of fusegen's."""
        if spec.is_relative_to(shipped()):
            return OF_FUSEGEN + place(spec).as_posix()
        return Path(os.path.relpath(spec.resolve(), self.folder.resolve())).as_posix()


def opened(folder: Path, specs: Path) -> Outputs:
    """Return a folder with its manifest.

    Raises:
        BadManifest: its manifest is another tool's.
        NoAccess: the manifest cannot be read.
    """
    found = manifest.read(folder)
    return Outputs(folder, found.binding, found.modules, specs, found.runtime)
