"""The rewrite of `fusion` in Inductor's joint graph, behind those that its configuration has already."""

from typing import Any, Iterator, List

from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass

from .fusion import DECOMPOSED, decompose, identity


class Rewrite(CustomGraphPass):
    """Decomposes operators whose neighbours Inductor fuses."""

    def __init__(self, before: "List[Any]") -> None:
        self.fusegen_before = before  # the custom passes that run first
        self.decomposed = DECOMPOSED  # the operators of the runtime that the rewrite belongs to

    def __call__(self, graph: Any) -> None:
        for other in self.fusegen_before:
            other(graph)
        decompose(graph)

    def __deepcopy__(self, memo: Any) -> "Rewrite":
        return self  # dynamo copies the configuration

    def uuid(self) -> Any:
        own = [
            other.uuid() if isinstance(other, CustomGraphPass) else None for other in self.fusegen_before
        ]
        return None if None in own else (*own, identity())


def configure() -> None:
    """Set the rewrite of this runtime behind the passes that are set, unless it is one of them."""
    current: Any = config.joint_custom_pre_pass
    if all(getattr(found, "decomposed", None) is not DECOMPOSED for found in _chain(current)):
        config.joint_custom_pre_pass = Rewrite(_listed(current))


def _listed(current: Any) -> "List[Any]":
    """Return the passes that a setting names: none, one or several."""
    if current is None:
        return []
    return list(current) if isinstance(current, (list, tuple)) else [current]


def _chain(current: Any) -> "Iterator[Any]":
    """Custom passes, and those that run before each."""
    for one in _listed(current):
        yield one
        yield from _chain(getattr(one, "fusegen_before", None))
