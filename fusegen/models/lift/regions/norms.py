"""Batch norms in evaluation as operations of a region.

There the norm of a channel is an affine function of it, by the statistics that the layer holds. The call of
the layer becomes one of a function of its tensors, which has a formula; where no region has it, the call
of the layer comes back.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, fx, nn

from fusegen.models.lift.fx_graph import HOOKS, LAYER
from fusegen.models.lift.regions.naming import TITLE, WISHED
from fusegen.models.lift.regions.worth import PASSES
from fusegen.models.reader.aten_calls import layer_of, value_of

KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
STATISTICS, AFFINE = ("running_mean", "running_var"), ("weight", "bias")


def normed(x: Tensor, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    """Return the norm by given statistics."""
    return (x - mean) * torch.rsqrt(var + eps)


def normed_affine(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Return the norm by given statistics, with a weight and a bias."""
    return (x - mean) * torch.rsqrt(var + eps) * weight + bias


def open_norms(graph: fx.Graph) -> None:
    """Make each batch norm of a graph that holds in evaluation one operation of its tensors."""
    for node in [*graph.nodes]:
        if _opens(node):
            _open(graph, node)


def close_norms(graph: fx.Graph, inside: Iterable[fx.Node]) -> dict[str, bool]:
    """Make those batch norms calls of their layers again that are inside no region.

    Returns:
        The layers that stay operations, by path, with the mode that they have to be in.
    """
    kept, read = {*inside}, dict[str, bool]()
    for node in [*graph.nodes]:
        if node.target not in (normed, normed_affine) or LAYER not in node.meta:
            continue
        if node in kept:
            read[node.meta[LAYER]] = False
        else:
            _close(graph, node)
    return read


def _opens(node: fx.Node) -> bool:
    """Tell if a node is a batch norm that one kernel can compute with others."""
    layer, whole = layer_of(node), value_of(node)
    if type(layer) not in KINDS or len(node.args) != 1 or node.kwargs or not isinstance(whole, Tensor):
        return False
    if any(getattr(layer, hooks) for hooks in HOOKS) or "forward" in vars(layer):
        return False
    held = [getattr(layer, name) for name in (*STATISTICS, *AFFINE)]
    is_affine = [each is not None for each in held[2:]]
    if any(each is None for each in held[:2]) or is_affine[0] != is_affine[1]:
        return False
    tensors = [each for each in held if each is not None]
    return all(each.dtype == whole.dtype and each.device == whole.device for each in tensors)


def _open(graph: fx.Graph, node: fx.Node) -> None:
    layer: Any = layer_of(node)
    whole, path = value_of(node), str(node.target)
    name = path.rsplit(".", 1)[-1]
    names = [*STATISTICS, *(AFFINE if layer.weight is not None else ())]
    shape = (layer.num_features, *[1] * (whole.dim() - 2))
    views = []
    with graph.inserting_before(node):
        for each in names:
            held = graph.get_attr(f"{path}.{each}")
            view = graph.call_method("view", (held, *shape))
            held.meta["val"], view.meta["val"] = whole.new_empty(shape[:1]), whole.new_empty(shape)
            word = each.removeprefix("running_")
            view.meta |= {LAYER: path, WISHED: word if name.isdigit() else f"{name}_{word}"}
            views.append(view)
        function: Callable[..., Tensor] = normed_affine if len(views) > 2 else normed
        made = graph.call_function(function, (node.args[0], *views, layer.eps))
    made.meta = {**node.meta, LAYER: path, TITLE: "batch_norm", PASSES: 1}
    for one in (*views, made):
        one.stack_trace = node.stack_trace
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _close(graph: fx.Graph, node: fx.Node) -> None:
    x, *others = node.all_input_nodes
    with graph.inserting_before(node):
        call = graph.call_module(node.meta[LAYER], (x,))
    call.meta = {key: each for key, each in node.meta.items() if key not in (LAYER, TITLE, PASSES)}
    node.replace_all_uses_with(call)
    graph.erase_node(node)
    for view in others:
        [held] = view.all_input_nodes
        graph.erase_node(view)
        graph.erase_node(held)
