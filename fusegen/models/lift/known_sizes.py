"""Sizes of tensors that a forward reads, though they are known: of parameters, or of one.

The text of a forward reads them again, as they may be others where the constructor has other arguments. So
they are numbers with labels while it is captured, and become calls of the graph.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn

from fusegen.models.lift.constructor_numbers import carried
from fusegen.models.lift.labels import label_of, plain

SIZE = "size_of_"  # what the label of a size begins with


class Sizes:
    """The sizes that a forward reads, by their labels.

    Attributes:
        read: the tensor of each, and the dimension.
    """

    def __init__(self) -> None:
        self.read: list[tuple[fx.Node, int]] = []

    def labelled(self, size: Any, of: fx.Node, dim: int) -> Any:
        """Return the size of a dimension with a label; one that is a symbol as it is."""
        if type(size) is not int:
            return size
        self.read.append((of, dim))
        return carried(f"{SIZE}{len(self.read) - 1}", size, {})

    def put_in(self, graph: fx.Graph, model: nn.Module) -> None:
        """Let a graph read the sizes, and compute what is made of them, where its calls have these."""
        made: dict[str, fx.Node] = {}
        for node in [*graph.nodes]:

            def put(value: Any, node: fx.Node = node) -> Any:
                label = label_of(value) or ""
                if SIZE in label and label not in made:
                    made[label] = self._computed(label, value, node, model)
                return made.get(label, value)

            node.args = fx.node.map_aggregate(node.args, put)
            node.kwargs = fx.node.map_aggregate(node.kwargs, put)

    def _computed(self, label: str, value: Any, reader: fx.Node, model: nn.Module) -> fx.Node:
        """Return the value of a label as a node in front of its reader."""
        tracer = fx.proxy.GraphAppendingTracer(reader.graph)
        last = reader.prev
        with reader.graph.inserting_before(reader):
            names: dict[str, Any] = {"self": model, "math": _Math(tracer)}
            for place, (of, dim) in enumerate(self.read):
                if f"{SIZE}{place}" in label:
                    node = reader.graph.call_function(torch.ops.aten.sym_size.int, (of, dim))
                    names[f"{SIZE}{place}"] = fx.Proxy(node, tracer)
            made: fx.Node = eval(label, names).node
        while last.next is not reader:
            last = last.next
            last.meta["val"], last.stack_trace = plain(value), reader.stack_trace
        return made


class _Math:
    """The module math, whose functions are calls of a graph."""

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(math, name)
        return lambda *given: self.tracer.create_proxy("call_function", function, given, {})


def of_sizes(function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """Return what a function of math makes of numbers, with its label."""
    texts = (label_of(each) or repr(each) for each in given)
    value = getattr(math, function.__name__)(*map(plain, given))
    return carried(f"math.{function.__name__}({', '.join(texts)})", value, {})
