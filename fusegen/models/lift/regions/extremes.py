"""Values of `max` and `min` along a dimension as operations of a region.

PyTorch gives them beside their places. Where only the values are read, the call and what takes the
values of its result become one operation; where no region has it, they come back.
"""

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, fx

from fusegen.models.reader.aten_calls import calls_of

ORIGINAL = "original"  # the key of the node that an operation stands for


def largest(*given: Any, **named: Any) -> Tensor:
    """Return the largest elements along a dimension."""
    result: Tensor = torch.max(*given, **named)[0]
    return result


def smallest(*given: Any, **named: Any) -> Tensor:
    """Return the smallest elements along a dimension."""
    result: Tensor = torch.min(*given, **named)[0]
    return result


EXTREMES: dict[str, Callable[..., Tensor]] = {"max": largest, "min": smallest}
NAMES: dict[Any, str] = {function: name for name, function in EXTREMES.items()}


def open_extremes(graph: fx.Graph) -> None:
    """Make the values of `max` and `min` one operation each, where their places are not read."""
    for values, pair, name in [*_values_in(graph)]:
        with graph.inserting_before(values):
            made = graph.call_function(EXTREMES[name], pair.args, dict(pair.kwargs))
        made.meta, made.stack_trace = {**values.meta, ORIGINAL: values}, pair.stack_trace
        values.replace_all_uses_with(made)


def close_extremes(graph: fx.Graph, inside: Iterable[fx.Node]) -> None:
    """Make operations those of PyTorch again that are inside no region."""
    kept = {*inside}
    for node in [each for each in graph.nodes if ORIGINAL in each.meta]:
        values: fx.Node = node.meta.pop(ORIGINAL)
        pair = values.all_input_nodes[0]
        if node not in kept:
            node.replace_all_uses_with(values)
        for each in (values, pair) if node in kept else (node,):
            graph.erase_node(each)


def _values_in(graph: fx.Graph) -> Iterator[tuple[fx.Node, fx.Node, str]]:
    """Yield what takes the values of a call, the call, and its name."""
    for pair in graph.nodes:
        calls = calls_of(pair) if pair.op == "call_function" else None
        if calls is None or calls.name not in EXTREMES:
            continue
        for unread in [each for each in pair.users if not each.users]:  # of `values, _ = x.max(1)`
            graph.erase_node(unread)
        if len(pair.users) != 1:
            continue
        [values] = pair.users
        is_taken = values.target is operator.getitem and values.args[1:] == (0,)
        if is_taken and isinstance(calls.made[0].arguments.get("dim"), int):
            yield values, pair, calls.name
