"""The operations of a region as they were, for tensors that its kernel does not take, and for clocks."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from fusegen.models.lift.labels import plain
from fusegen.models.lift.regions.own_formulas import OF_BATCH, dropout_of
from fusegen.models.lift.regions.pointwise import constant_of
from fusegen.models.lift.regions.region import Region
from fusegen.models.reader.aten_calls import calls_of
from fusegen.models.reader.operator_call import emitted


def original(region: Region, inputs: Sequence[fx.Node], numbers: Sequence[float] = ()) -> fx.GraphModule:
    """Return the operations of a region as a function of its inputs in some order.

    The layer of its batch norm, or whether its dropout drops, is in front of these; numbers, which the
    operations have as they are, are behind them.
    """
    graph = fx.Graph()
    given = graph.placeholder("given") if region.layer or region.drops else None
    copies = {node: graph.placeholder(f"x{place}") for place, node in enumerate(inputs)}
    for place in range(len(numbers)):
        graph.placeholder(f"number{place}")

    def copy_of(node: fx.Node) -> Any:
        return copies[node] if node in copies else graph.call_function(torch.tensor, (constant_of(node),))

    for part in region.parts:
        node = part.node
        if OF_BATCH in node.meta:
            copies[node] = graph.call_function(called, (given, *map(copy_of, node.all_input_nodes)))
        elif part.drops and (found := dropout_of(node)):
            copies[node] = graph.call_function(F.dropout, (copy_of(found[0]), plain(found[1]), given))
        elif node.op == "call_module":  # a graph of its own has no layers
            calls = calls_of(node)
            assert calls is not None
            copies[node] = emitted(graph, calls, [*map(copy_of, node.all_input_nodes)])
        else:
            copies[node] = graph.node_copy(node, copy_of)
    results = tuple(copies[node] for node in region.results)
    graph.output(results if region.others else results[0])
    return fx.GraphModule({}, graph)


def called(layer: nn.Module, x: Tensor) -> Any:
    """Return the result of a layer."""
    return layer(x)
