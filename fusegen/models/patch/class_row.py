"""A row of the tables of activations: the class of the library, and the arguments that both have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

IN_PLACE = ("inplace",)


@dataclass(frozen=True)
class Row:
    """A class of the library.

    Attributes:
        module: its name, by that of an option of the activation; one name where it has no such option.
        arguments: the attributes of the activation that are arguments of both constructors.
        option: the attribute that decides the module.
        state: the names of its parameters, which the generated module shares.
    """

    module: str | Mapping[str, str]
    arguments: tuple[str, ...] = ()
    option: str = ""
    state: tuple[str, ...] = ()

    def name(self, layer: nn.Module) -> str | None:
        """Return the module for an activation; None where its option has none."""
        return self.module if isinstance(self.module, str) else self.module.get(getattr(layer, self.option))
