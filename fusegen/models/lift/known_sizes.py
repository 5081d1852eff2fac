"""Sizes of tensors that a forward reads, though they are known: of parameters, or of one.

The text of a forward reads them again, as they may be others where the constructor has other arguments. So
they are numbers that know what made them while it is captured, and become calls of the graph.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn

from fusegen.models.lift.constructor_numbers import CARRIERS, carried
from fusegen.models.lift.fx_graph import own
from fusegen.models.lift.labels import label_of, plain

SIZE = "size_of_{}"  # the label of a size
CARRYING = tuple(CARRIERS.values())


def size_of(tensor: fx.Node | str, dim: int) -> int:
    """Stand for the size of a node, or of the model's tensor at a path, in what made a number."""
    raise NotImplementedError(f"the graph reads the size {dim} of {tensor}")


class Sizes:
    """The sizes that a forward reads.

    Attributes:
        read: how many it has read.
    """

    def __init__(self) -> None:
        self.read = 0

    def labelled(self, size: Any, of: fx.Node | str, dim: int) -> Any:
        """Return the size of a dimension of a value, or of the model's tensor at a path, with a label.

        One that is a symbol stays as it is.
        """
        if type(size) is not int:
            return size
        self.read += 1
        return carried(SIZE.format(self.read - 1), size, {}, (size_of, (of, dim)))

    def put_in(self, graph: fx.Graph, model: nn.Module) -> None:
        """Let a graph read the sizes, and compute what is made of them, where its calls have these."""
        known: dict[str, fx.Node] = {}
        own(graph, model)
        for node in [*graph.nodes]:

            def put(value: Any, node: fx.Node = node) -> Any:
                return _computed(value, node, known) if is_of_sizes(value) else value

            node.args = fx.node.map_aggregate(node.args, put)
            node.kwargs = fx.node.map_aggregate(node.kwargs, put)


def is_of_sizes(value: Any) -> bool:
    """Return True for a size that is known, and for what was made of one."""
    made = getattr(value, "made", None) if isinstance(value, CARRYING) else None
    return made is not None and (made[0] is size_of or any(map(is_of_sizes, made[1])))


def _computed(value: Any, reader: fx.Node, known: dict[str, fx.Node]) -> fx.Node:
    """Return a number as a node in front of its reader; `known` has those so far, by their labels."""
    label = str(label_of(value))
    if label not in known:
        function, given = value.made
        if function is size_of:
            of, dim = given
            given = _of_state(of, reader.graph) if isinstance(of, str) else of, dim
            function = torch.ops.aten.sym_size.int
        function = getattr(math, function.__name__) if function.__module__ == "math" else function
        args = tuple(_computed(each, reader, known) if is_of_sizes(each) else each for each in given)
        with reader.graph.inserting_before(reader):
            known[label] = reader.graph.call_function(function, args)
        known[label].meta["val"], known[label].stack_trace = plain(value), reader.stack_trace
    return known[label]


def _of_state(path: str, graph: fx.Graph) -> fx.Node:
    """Return the node of a parameter or a buffer, in front of all that may read it."""
    found = next((node for node in graph.find_nodes(op="get_attr") if node.target == path), None)
    node = found or graph.create_node("get_attr", path, name=path.replace(".", "_"))
    node.meta.setdefault("val", functools.reduce(getattr, path.split("."), graph.owning_module))
    first = next(each for each in graph.nodes if each.op != "placeholder")
    if first is not node:
        first.prepend(node)
    return node


def of_sizes(function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """Return what a function of math makes of numbers, with its label."""
    texts = (label_of(each) or repr(each) for each in given)
    value = getattr(math, function.__name__)(*map(plain, given))
    return carried(f"math.{function.__name__}({', '.join(texts)})", value, {}, (function, given))
