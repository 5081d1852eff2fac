"""A compiled spec's place: the name of its module, and the words by which `build` finds the spec."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fusegen.core.spec import Spec
from fusegen.language.library import Library, origin, place


@dataclass(frozen=True)
class Placed:
    """A spec in its library."""

    spec: Spec  # what was parsed
    library: Library  # the specs that it may name

    @property
    def place(self) -> PurePosixPath:
        """The place of its module in a folder of modules, without the ending."""
        return place(self._file)

    @property
    def origin(self) -> str:
        """The words by which `build` finds its spec again."""
        return origin(self._file)

    @property
    def _file(self) -> Path:
        return self.library.folders[0] / f"{self.spec.name}.yaml"

    def module(self, output: Path) -> Path:
        """Return the file of its module in a folder of modules."""
        return output / f"{self.place}.py"
