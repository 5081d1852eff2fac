"""Convolutions whose bias a region adds: on CUDA PyTorch adds it by a kernel over the whole output."""

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from fusegen.models.lift.fx_graph import HOOKS
from fusegen.models.lift.regions.growing import MOST_OPERATIONS, MOST_TENSORS, same_shape
from fusegen.models.lift.regions.moved_views import hoist, permutation_of
from fusegen.models.lift.regions.naming import TITLE, WISHED
from fusegen.models.lift.regions.region import Region
from fusegen.models.lift.source_of_calls import WRITTEN, written_of
from fusegen.models.reader.aten_calls import layer_of, value_of

CONVOLUTIONS = (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)
ATEN: Any = torch.ops.aten
RESHAPES = {ATEN.view.default: ATEN.reshape.default, ATEN.view_as.default: ATEN.reshape_as.default}


def without_bias(layer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the function of this name of the runtime, in a graph."""
    raise NotImplementedError


def pairs_of(region: Region) -> Iterator[fx.Node]:
    """Yield the calls of convolutions without their biases that a region reads."""
    for node in region.inputs:
        of = node.args[0] if node.target is operator.getitem else None
        if isinstance(of, fx.Node) and of.target is without_bias:
            yield of


def split_biases(
    graph: fx.Graph, regions: Iterable[Region], is_worth: Callable[[Region, fx.Node], bool]
) -> None:
    """Make the bias of each convolution in front of a region an addition of the region.

    The call of the layer becomes one of ``without_bias``, which gives the output and the bias. A region
    that is not worth a kernel with the bias stays as it is. The runtime may lay an output channels last:
    what is a view of one in NCHW is a reshape then.
    """
    for region in regions:
        room = len(region.inputs) < MOST_TENSORS and len(region.parts) < MOST_OPERATIONS
        for view in region.inputs[:1]:
            node = view.all_input_nodes[0] if permutation_of(view) is not None else view
            whole = same_shape(region.whole, value_of(view))
            alone = {*view.users} <= {*region.nodes} and (node is view or [*node.users] == [view])
            if room and whole and alone and is_apart(node) and is_worth(region, node):
                total = _split(graph, node)
                if view is not node:
                    hoist(view, total)
    _reshape_outputs(graph)


def _reshape_outputs(graph: fx.Graph) -> None:
    """Make views of outputs, and of what is computed from them, reshapes.

    Lifting refuses writes to a view whose memory is read elsewhere, so that a copy in its place is right.
    """
    behind = set[fx.Node]()
    for node in graph.nodes:
        if node.target is without_bias or not behind.isdisjoint(node.all_input_nodes):
            behind.add(node)
            node.target = RESHAPES.get(node.target, node.target)


def is_apart(node: fx.Node) -> bool:
    """Return True if a node is one of PyTorch's convolutions, with a bias that it can run without."""
    layer = layer_of(node)
    if layer is None or type(layer) not in CONVOLUTIONS or any(getattr(layer, each) for each in HOOKS):
        return False
    return layer.bias is not None and len(node.args) == 1 and not node.kwargs


def _split(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """Make the call of a convolution one without its bias, and return the sum of both."""
    layer, whole = layer_of(node), value_of(node)
    assert isinstance(layer, CONVOLUTIONS)
    name = str(node.target).rsplit(".", 1)[-1]
    bias = whole.new_empty((layer.out_channels, *[1] * len(layer.kernel_size)))
    with graph.inserting_before(node):
        of = graph.get_attr(str(node.target))
        pair = graph.call_function(without_bias, (of, *node.args))
        output = graph.call_function(operator.getitem, (pair, 0))
        added = graph.call_function(operator.getitem, (pair, 1))
        total = graph.call_function(ATEN.add.Tensor, (output, added))
    for each, value in ((pair, (whole, bias)), (output, whole), (added, bias), (total, whole)):
        each.meta["val"] = value
        each.stack_trace = node.stack_trace
    total.meta |= {TITLE: "bias", WRITTEN: replace(written_of(node), operands=(), modules=())}
    added.meta[WISHED] = f"{name}_bias" if not name.isdigit() else "conv_bias"
    node.replace_all_uses_with(total)
    graph.erase_node(node)
    return total
