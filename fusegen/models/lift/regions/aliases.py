"""Writes in place: which of them a form without a write replaces."""

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch._ops import OpOverload

from fusegen.models.lift.fx_graph import NO_GRAD, REPLACED, name_of, writes_in_place
from fusegen.models.reader.aten_calls import layer_of
from fusegen.models.reader.aten_table import ROWS

VIEWS = frozenset(  # calls whose result may share the memory of what they read
    "detach contiguous unsqueeze squeeze view reshape view_as reshape_as transpose permute t flatten "
    "unflatten expand expand_as narrow select getitem chunk split unbind tensor_split hsplit vsplit "
    "to type type_as float double half bfloat16 cpu cuda swapaxes swapdims movedim moveaxis diagonal "
    "real imag positive pos getattr dropout alias unfold as_strided numpy_T T mT H adjoint ravel "
    "broadcast_to dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout atleast_1d "
    "atleast_2d atleast_3d unsafe_chunk unsafe_split requires_grad einsum broadcast_tensors meshgrid "
    "split_with_sizes dsplit view_as_real view_as_complex conj resolve_conj resolve_neg sum_to_size "
    "cartesian_prod bool int long short char byte cfloat cdouble values indices".split()
)
STATISTICS = ("running_mean", "running_var")
VIEW_LAYERS = (nn.Identity, nn.Flatten, nn.Unflatten, nn.modules.dropout._DropoutNd, nn.Sequential)


def writes(node: fx.Node) -> bool:
    """Return True if a node writes to its first argument."""
    if node.op == "call_module":
        return bool(getattr(layer_of(node), "inplace", False))
    return node.op in ("call_function", "call_method") and writes_in_place(node)


def unsafe(node: fx.Node) -> str:
    """Return why a write of a call is not kept; empty where it is, or where the call writes to nothing.

    What it writes to in place has to be a new value that nothing else reads, or the only view of one.
    What it writes to besides, such as ``out=``, is not read before: a region would read it later.
    """
    if any(_is_read_before(each, node) for each in _written_besides(node)):
        return "what it writes to is read before"
    if not writes(node):
        return ""
    of = node.args[0] if node.args else None
    if NO_GRAD in node.meta and isinstance(of, fx.Node) and NO_GRAD not in of.meta:
        return "it writes without a gradient to a value that has one"
    while isinstance(of, fx.Node) and of.op not in ("placeholder", "get_attr"):
        if len(of.users) > 1:
            return "what it writes to is read elsewhere"
        if not is_view(of):
            return ""
        of = of.args[0] if of.args else None
    return "it writes to an input or a parameter"


def _written_besides(node: fx.Node) -> list[fx.Node]:
    """Return the values that a call writes to, but for that of a write in place."""
    found = [node.kwargs.get("out")]
    if node.target is operator.setitem:
        found += node.args[:1]
    if node.target in (F.batch_norm, F.instance_norm):
        found += [*node.args[1:3], node.kwargs.get("running_mean"), node.kwargs.get("running_var")]
    if isinstance(node.target, torch._ops.OpOverload):
        pairs = zip(node.args, node.target._schema.arguments, strict=False)
        found += [each for each, of in pairs if _is_besides(of, node)]
    layer, owner = layer_of(node), node.graph.owning_module
    own = {id(each) for each in layer.buffers()} if layer is not None else set()
    if own and owner is not None:
        names = {name for name, each in owner.named_buffers(remove_duplicate=False) if id(each) in own}
        found += [each for each in node.graph.nodes if each.op == "get_attr" and each.target in names]
    return [each for each in found if isinstance(each, fx.Node)]


def _is_besides(argument: Any, node: fx.Node) -> bool:
    """Return True if an operator writes to an argument that is not its first in place."""
    is_written = argument.alias_info is not None and argument.alias_info.is_write
    return argument.name in STATISTICS or (is_written and not (argument.name == "self" and writes(node)))


def _is_read_before(written: fx.Node, node: fx.Node) -> bool:
    """Return True if a call in front of a node reads a value, or what it is a view of."""
    through: fx.Node | None = None
    of: Any = written
    while isinstance(of, fx.Node):
        before = (user for user in of.users if user is not through and user < node)
        if any(user.target is not operator.setitem for user in before):
            return True
        through, of = of, of.args[0] if is_view(of) and of.args else None
    return False


def follow_writes(graph: fx.Graph) -> None:
    """Let what stands behind a write in place read the result of the write, which is the same tensor.

    A pointwise operation that writes to a new value, which is read before, too, becomes the operation that
    makes another new value.
    """
    place = {node: number for number, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        of = node.args[0] if writes(node) and node.args else None
        if not isinstance(of, fx.Node):
            continue
        for user in [each for each in of.users if place[each] > place[node]]:
            user.replace_input_with(of, node)
        is_new = of.op not in ("placeholder", "get_attr") and not is_view(of)
        has_gradients = NO_GRAD not in node.meta or NO_GRAD in of.meta
        if is_new and has_gradients and len(of.users) > 1 and not any(map(is_view, of.users)):
            _make_new(node)


def _make_new(node: fx.Node) -> None:
    """Give a call that writes in place the form that makes a new tensor, if the table has both."""
    name, node.meta[REPLACED] = name_of(node).removesuffix("_"), True
    if name in ROWS and isinstance(node.target, OpOverload):
        node.target = getattr(getattr(torch.ops.aten, name), node.target._overloadname, node.target)


def is_view(node: fx.Node) -> bool:
    """Return True if the value of a node may share the memory of what it reads."""
    layer = layer_of(node)
    if layer is not None:
        return isinstance(layer, VIEW_LAYERS)
    returns = node.target._schema.returns if isinstance(node.target, OpOverload) else ()
    is_alias = any(each.alias_info is not None and not each.alias_info.is_write for each in returns)
    return is_alias or name_of(node).strip("_") in VIEWS
