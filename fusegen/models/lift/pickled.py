"""Graphs as rows of plain values, which are pickled and copied without recursion.

torch.fx pickles a node with those that it is linked to: a long graph exceeds the limit of recursion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._ops import OpOverload


@dataclass(frozen=True)
class Place:
    """A node in the arguments of another."""

    number: int  # of the node in its graph


class Row(NamedTuple):
    """The arguments of `torch.fx.Graph.create_node`, with places for nodes."""

    op: str
    target: Any
    args: Any
    kwargs: Any
    name: str
    type_expr: Any


class Rows(tuple[Row, ...]):
    """The nodes of a graph, in order."""

    __slots__ = ()

    def __deepcopy__(self, memo: Any) -> Rows:
        """Return itself: copies of a graph share what it calls and its constants."""
        return self


def rows(graph: fx.Graph) -> Rows:
    """Return the nodes of a graph, without what they carry in ``meta``."""
    at = {node: Place(number) for number, node in enumerate(graph.nodes)}
    node_to_place: Any = at.__getitem__  # torch types it as a map to arguments of nodes

    def placed(given: Any) -> Any:
        return fx.map_arg(given, node_to_place)

    return Rows(
        Row(node.op, _named(node.target), placed(node.args), placed(node.kwargs), node.name, node.type)
        for node in graph.nodes
    )


class Operator(NamedTuple):
    """An operator of PyTorch, which has no pickle."""

    library: str
    name: str
    overload: str


def _named(target: Any) -> Any:
    if not isinstance(target, OpOverload):
        return target
    library, name = target._schema.name.split("::")
    return Operator(library, name, target._overloadname)


def _target(named: Any) -> Any:
    if not isinstance(named, Operator):
        return named
    packet = getattr(getattr(torch.ops, named.library), named.name)
    return getattr(packet, named.overload)


def graph_of(given: Rows) -> fx.Graph:
    """Return the graph of rows."""
    made, nodes = fx.Graph(), list[fx.Node]()

    def node_at(each: Any) -> Any:
        return nodes[each.number] if isinstance(each, Place) else each

    for row in given:
        args, kwargs = (fx.node.map_aggregate(each, node_at) for each in (row.args, row.kwargs))
        nodes.append(made.create_node(row.op, _target(row.target), args, kwargs, row.name, row.type_expr))
    return made
