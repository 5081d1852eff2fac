"""The libraries that builds make."""

import pathlib
from typing import Any, Dict, NamedTuple, Optional, Tuple

from . import by_dtype, flavour, library_names


class Wanted(NamedTuple):
    """A library that a build makes.

    Attributes:
        kernels, operators: of the module.
        kernel, device, part: what it computes, and where; the part is empty where it is all.
        recipe: the sources and the flags.
        library: its path.
        made_by: a line on the tools.
    """

    kernels: Any
    operators: Any
    kernel: str
    device: str
    part: str
    recipe: "Dict[str, Any]"
    library: pathlib.Path
    made_by: str

    @property
    def names(self) -> "Tuple[str, str]":
        """The names that the library has: the namespace of the operators, and the module."""
        return self.operators.name, self.kernels.name

    @property
    def of(self) -> "Tuple[str, str]":
        """The kernel of the module, of which this may be a part."""
        return self.operators.name, self.kernel

    @property
    def is_named(self) -> bool:
        """True if the library has names: the functions of a dtype have none."""
        return self.part in ("", by_dtype.BINDING)

    @property
    def encoded(self) -> bytes:
        """The bytes that the library has its names in."""
        return library_names.encoded(*self.names) if self.is_named else b""

    @property
    def title(self) -> str:
        """The words for the build."""
        return f"{self.kernels.name} {self.kernel} for {self.device}"

    @property
    def alike(self) -> str:
        """The stem of the lock, and the end of the path, of libraries that differ in their names only."""
        return self.library.stem[len(self.operators.name) + 1 :]

    def named(self, content: bytes) -> "Optional[bytes]":
        """Return the bytes of a library of the same code under the names of this one."""
        return library_names.renamed(content, *self.names) if self.is_named else content

    def implement(self, built: Any) -> None:
        """Register the kernels of the library, which was loaded."""
        if self.is_named:
            flavour.implement(self.operators, self.kernels.name, built, self.kernel, self.device.upper())
        else:
            by_dtype.keep(self.operators, self.kernel, self.part, self.library)
