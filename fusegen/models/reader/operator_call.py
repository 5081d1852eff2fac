"""The call of an operator of ATen, with its arguments bound by the schema."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_map_only


@dataclass(frozen=True)
class Place:
    """An argument that is an input of the node."""

    number: int  # its place among `fx.Node.all_input_nodes`


@dataclass(frozen=True)
class Result:
    """An argument that an earlier call made."""

    number: int  # of the call


@dataclass(frozen=True)
class Call:
    """A call of an operator."""

    overload: OpOverload  # the operator
    # args, kwargs: as they are given, with places and results for tensors
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    is_same: bool = False  # its result has the dtype, the sizes and the strides of its first argument

    @functools.cached_property
    def name(self) -> str:
        """The name of the operator, without its overload; one that writes in place is no other."""
        name = self.overload._schema.name.rpartition("::")[2]
        return name.removeprefix("special_").rstrip("_") if not name.endswith("__") else name

    @functools.cached_property
    def arguments(self) -> Mapping[str, Any]:
        """All arguments, by the names of the schema."""
        names = [each.name for each in self.overload._schema.arguments]
        return {**self.defaults, **dict(zip(names, self.args, strict=False)), **self.kwargs}

    @functools.cached_property
    def defaults(self) -> Mapping[str, Any]:
        """The arguments that have defaults."""
        every = self.overload._schema.arguments
        return {each.name: each.default_value for each in every if each.has_default_value()}

    def has(self, name: str, value: Any) -> bool:
        """Return True if an argument has a value."""
        own = self.arguments[name]
        return not isinstance(own, Place | Result) and bool(own == value)


@dataclass(frozen=True)
class Calls:
    """The operators that a node runs."""

    made: tuple[Call, ...]  # in order
    # the place or the result that the node's value is; None where it is no tensor
    result: Place | Result | None

    @property
    def name(self) -> str:
        """The name of the only operator; empty where there are several or none."""
        return self.made[0].name if len(self.made) == 1 else ""


def emitted(graph: fx.Graph, calls: Calls, inputs: Sequence[Any]) -> Any:
    """Put calls at the end of a graph, and return the result."""
    made: list[fx.Node] = []

    def read(each: Any) -> Any:
        return made[each.number] if isinstance(each, Result) else inputs[each.number]

    for call in calls.made:
        given = tree_map_only((Place, Result), read, (call.args, dict(call.kwargs)))
        made.append(graph.call_function(call.overload, *given))
    return read(calls.result)
