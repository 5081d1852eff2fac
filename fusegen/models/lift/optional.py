"""Arguments of a forward that the inputs leave out: the graph holds their defaults."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from fusegen.models.reader.call_structure import Unlike

PLAIN = (bool, int, float, str, type(None))
OTHER = "forward was traced with {0}={1!r}, and {0} is another value"


def left_out(forward: Callable[..., Any], count: int) -> Mapping[str, Any]:
    """Return the defaults, which a graph can hold, of the arguments behind those given by place."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    every = [each for each in inspect.signature(forward).parameters.values() if each.kind not in kinds]
    rest = {each.name: each.default for each in every[count:]}
    return {name: value for name, value in rest.items() if isinstance(value, PLAIN)}


def require_default(value: Any, default: Any, name: str) -> None:
    """Refuse another value of an argument than its default.

    Raises:
        Unlike: it is another.
    """
    if not (value is default or (type(value) is type(default) and value == default)):
        raise Unlike(OTHER.format(name, default))
