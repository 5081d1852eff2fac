"""Norms as operations of a region.

In evaluation the batch norm of a channel is an affine function of it, by the statistics that the layer
holds. In a graph of training, which may hold in evaluation, too, a kernel is called with the layer, which
has its mode and its statistics. Layer, RMS, group and instance norms reduce rows in both modes. The call of
the layer becomes that of a function of its tensors, which has a formula; where no region has it, the call
of the layer comes back.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from fusegen.models.lift.fx_graph import HOOKS, LAYER
from fusegen.models.lift.labels import known, label_of
from fusegen.models.lift.regions.naming import TITLE, WISHED
from fusegen.models.lift.regions.own_formulas import OF_BATCH
from fusegen.models.lift.regions.worth import PASSES
from fusegen.models.reader.aten_calls import layer_of, value_of

KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
OF_IMAGES = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
Arguments = Callable[[Any, list[Any]], tuple[Any, ...]]  # between the tensor and eps, of a layer
OF_ROWS: Mapping[type[nn.Module], tuple[Callable[..., Tensor], Arguments]] = {
    nn.LayerNorm: (F.layer_norm, lambda of, held: (of.normalized_shape, *held)),
    nn.RMSNorm: (F.rms_norm, lambda of, held: (of.normalized_shape, *held)),
    nn.GroupNorm: (F.group_norm, lambda of, held: (of.num_groups, *held)),
    **dict.fromkeys(OF_IMAGES, (F.instance_norm, lambda of, held: (None, None, *held, True, 0.1))),
}
FUNCTIONS = frozenset(function for function, _ in OF_ROWS.values())
STATISTICS, AFFINE = ("running_mean", "running_var"), ("weight", "bias")


def normed(x: Tensor, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    """Return the norm by given statistics."""
    return (x - mean) * torch.rsqrt(var + eps)


def normed_affine(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Return the norm by given statistics, with a weight and a bias."""
    return (x - mean) * torch.rsqrt(var + eps) * weight + bias


def open_norms(graph: fx.Graph, *, is_training: bool) -> None:
    """Make the norms of a graph one operation of their tensors each; in training a batch norm is a call."""
    for node in [*graph.nodes]:
        layer = layer_of(node)
        if layer is None or not _is_plain(node, layer):
            continue
        if type(layer) in OF_ROWS:
            if type(layer) not in OF_IMAGES or _has_own_statistics(node, layer):
                _open_rows(graph, node, layer)
        elif type(layer) in KINDS and is_training:
            if layer.running_mean is None or layer.num_batches_tracked is not None:
                node.meta |= {OF_BATCH: True, TITLE: "batch_norm", PASSES: 1}
        elif _opens(node, layer):
            _open(graph, node, layer)


def close_norms(graph: fx.Graph, inside: Iterable[fx.Node]) -> dict[str, bool]:
    """Make those batch norms calls of their layers again that are inside no region.

    Returns:
        The layers that stay operations, by path, with the mode that they have to be in.
    """
    kept, read = {*inside}, dict[str, bool]()
    for node in [*graph.nodes]:
        if node.target not in (normed, normed_affine, *FUNCTIONS) or LAYER not in node.meta:
            continue
        if node not in kept:
            _close(graph, node)
        elif node.target not in FUNCTIONS:
            read[node.meta[LAYER]] = False
    return read


def is_batch_norm(layer: Any) -> bool:
    """Tell if a layer is a batch norm that runs nothing but its forward: others may take its place."""
    return type(layer) in KINDS and _has_forward_only(layer)


def _has_forward_only(layer: nn.Module) -> bool:
    return not any(getattr(layer, hooks) for hooks in HOOKS) and "forward" not in vars(layer)


def _is_plain(node: fx.Node, layer: nn.Module) -> bool:
    """Tell if a node calls a layer, which runs nothing but its forward, of one tensor."""
    if not _has_forward_only(layer):
        return False
    return len(node.args) == 1 and not node.kwargs and isinstance(value_of(node), Tensor)


def _has_own_statistics(node: fx.Node, layer: Any) -> bool:
    """Tell if a layer has the statistics of each image of a batch, whatever its mode."""
    images = value_of(node).dim() == 2 + OF_IMAGES.index(type(layer)) + 1
    return images and not layer.track_running_stats and layer.running_mean is None


def _opens(node: fx.Node, layer: Any) -> bool:
    """Tell if a layer is a batch norm that one kernel can compute with others."""
    if type(layer) not in KINDS:
        return False
    whole = value_of(node)
    held = [getattr(layer, name) for name in (*STATISTICS, *AFFINE)]
    is_affine = [each is not None for each in held[2:]]
    if any(each is None for each in held[:2]) or is_affine[0] != is_affine[1]:
        return False
    tensors = [each for each in held if each is not None]
    return all(each.dtype == whole.dtype and each.device == whole.device for each in tensors)


def _open_rows(graph: fx.Graph, node: fx.Node, layer: Any) -> None:
    path, (function, arguments) = str(node.target), OF_ROWS[type(layer)]
    with graph.inserting_before(node):
        names = (name for name in AFFINE if name in layer._parameters)
        held = [
            None if getattr(layer, name) is None else _held(graph, f"{path}.{name}", node) for name in names
        ]
        made = graph.call_function(function, (node.args[0], *arguments(layer, held), _eps(layer, path)))
    made.meta = {**node.meta, LAYER: path, TITLE: function.__name__, PASSES: 1}
    made.stack_trace = node.stack_trace
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _eps(layer: Any, path: str) -> Any:
    """Return what a norm adds to the variance, with its label; None if its dtype decides."""
    given = layer.eps
    return given if given is None or label_of(given) is not None else known(f"{path}.eps", given)


def _held(graph: fx.Graph, path: str, node: fx.Node) -> fx.Node:
    """Return a parameter of the layer that a node calls."""
    held, layer = graph.get_attr(path), layer_of(node)
    assert layer is not None
    like = layer.get_parameter(path.rpartition(".")[2])
    held.meta |= {"val": value_of(node).new_empty(like.shape, dtype=like.dtype), LAYER: str(node.target)}
    return held


def _open(graph: fx.Graph, node: fx.Node, layer: Any) -> None:
    whole, path = value_of(node), str(node.target)
    name = path.rsplit(".", 1)[-1]
    names = [*STATISTICS, *(AFFINE if layer.weight is not None else ())]
    shape = (layer.num_features, *[1] * (whole.dim() - 2))
    views = []
    with graph.inserting_before(node):
        for each in names:
            held = graph.get_attr(f"{path}.{each}")
            view = graph.call_function(torch.ops.aten.view.default, (held, [*shape]))
            held.meta["val"], view.meta["val"] = whole.new_empty(shape[:1]), whole.new_empty(shape)
            word = each.removeprefix("running_")
            view.meta |= {LAYER: path, WISHED: word if name.isdigit() else f"{name}_{word}"}
            views.append(view)
        function: Callable[..., Tensor] = normed_affine if len(views) > 2 else normed
        made = graph.call_function(function, (node.args[0], *views, _eps(layer, path)))
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
    for read in others:
        held = read.all_input_nodes
        for each in (read, *held):
            graph.erase_node(each)
