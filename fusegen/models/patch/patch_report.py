"""The report of `fusegen.patch`: layers that were replaced, and others with the reason."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Replaced:
    """A layer that was replaced."""

    path: str  # in the model
    before: str  # its class, with its arguments
    module: str  # the module of the library in its place
    when: str = ""  # it runs, a clause; empty where it always does

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.path or 'the model'}: {self.before} -> {self.module}" + (
            f", {self.when}" if self.when else ""
        )


@dataclass(frozen=True)
class Kept:
    """A layer that was not replaced."""

    path: str  # in the model; empty where it is the model
    layer: str  # its class, with its arguments
    why: str  # a clause

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.path or 'the model'}: {self.layer} stays, since {self.why}"


@dataclass(frozen=True)
class Report:
    """The result of `fusegen.patch`."""

    replaced: tuple[Replaced, ...]  # in the order of the model
    kept: tuple[Kept, ...]  # layers that are in the model still
    before: int  # how many generated modules of an earlier call it held
    # puts back what is replaced, and returns how many places that were
    undo: Callable[[], int] = field(repr=False, compare=False)

    def __str__(self) -> str:
        """Return one sentence where nothing was done, else a line for each layer."""
        if not self.replaced and not self.kept:
            if self.before:
                return f"the model is patched already: it has {_counted(self.before, 'generated module')}"
            return "the model has no layer that the library computes"
        head = f"replaced {_counted(len(self.replaced), 'layer')}, kept {len(self.kept)}"
        return "\n".join([head, *(f"  {each}" for each in (*self.replaced, *self.kept))])


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
