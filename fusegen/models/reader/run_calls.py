"""Calls of operators, run on tensors."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_map_only

from fusegen.models.reader.operator_call import Call, Calls, Place, Result

CASTS = frozenset("to _to_copy type_as".split())


def run(calls: Calls, tensors: Sequence[Tensor], *, casts: bool = True) -> Any:
    """Return the result of calls on tensors by places; without `casts`, dtypes are left as they are."""
    made: list[Any] = []

    def read(each: Any) -> Any:
        return made[each.number] if isinstance(each, Result) else tensors[each.number]

    for call in calls.made:
        given: Mapping[str, Any] = tree_map_only((Place, Result), read, dict(call.arguments))
        made.append(call.overload(**given) if casts else _uncast(call, given))
    return read(calls.result)


def _uncast(call: Call, given: Mapping[str, Any]) -> Any:
    if call.name in CASTS:
        return given["self"]
    return call.overload(**{name: None if name == "dtype" else each for name, each in given.items()})
