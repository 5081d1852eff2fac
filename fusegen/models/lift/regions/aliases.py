"""Writes in place: which of them a form without a write replaces."""

import operator
from typing import Any

import torch
from torch import fx, nn
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._pytree import tree_leaves

from fusegen.models.lift.fx_graph import NO_GRAD, REPLACED, name_of
from fusegen.models.reader.aten_calls import layer_of
from fusegen.models.reader.aten_table import ROWS

VIEWS = frozenset(  # operators whose results may share memory with their arguments, as no schema says
    "alpha_dropout atleast_1d atleast_2d atleast_3d broadcast_tensors cartesian_prod dropout einsum "
    "feature_alpha_dropout feature_dropout meshgrid sum_to_size type_as unsafe_chunk unsafe_split".split()
)
STATISTICS = ("running_mean", "running_var")
IN_PLACE = frozenset(  # operators of Python that write, in graphs of TorchDynamo
    "setitem iadd isub imul imatmul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift".split()
)
HELD = ("placeholder", "get_attr")  # kinds of nodes that others hold, too
VIEW_LAYERS = (nn.Identity, nn.Flatten, nn.Unflatten, nn.modules.dropout._DropoutNd, nn.Sequential)


def writes(node: fx.Node) -> bool:
    """Return True if a node writes to its first argument."""
    if node.op == "call_module":
        return bool(getattr(layer_of(node), "inplace", False))
    if node.args and isinstance(node.args[0], list | tuple):
        return False  # to those of a list it writes besides
    first = node.target._schema.arguments[:1] if isinstance(node.target, OpOverload) else ()
    return any(each.alias_info is not None and each.alias_info.is_write for each in first)


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
    while isinstance(of, fx.Node) and of.op not in HELD:
        if len(of.users) > 1:
            return "what it writes to is read elsewhere"
        if not is_view(of):
            return ""
        of = of.args[0] if of.args else None
    return "it writes to an input or a parameter"


def disturbs(node: fx.Node) -> bool:
    """Tell if a write may come between the result of a region and what it reads, whatever the regions are.

    It does not where the graph makes what it writes to, and nothing reads that before.
    """
    if not unsafe(node) or not writes(node):
        return bool(unsafe(node))
    of = _whole(node)
    return of.op in HELD or _is_read_before(of, node)


def _written_besides(node: fx.Node) -> list[fx.Node]:
    """Return the values that a call writes to, but for that of a write in place."""
    found: list[Any] = []
    if isinstance(node.target, OpOverload):
        every = node.target._schema.arguments
        given = {**dict(zip((each.name for each in every), node.args, strict=False)), **node.kwargs}
        found += [given.get(each.name) for each in every if _is_besides(each, node)]
    if isinstance(node.target, HigherOrderOperator) and _may_write(node):
        found += node.all_input_nodes
    layer, owner = layer_of(node), node.graph.owning_module
    own = {id(each) for each in layer.buffers()} if layer is not None else set()
    if own and owner is not None:
        names = {name for name, each in owner.named_buffers(remove_duplicate=False) if id(each) in own}
        found += [each for each in node.graph.nodes if each.op == "get_attr" and each.target in names]
    return [each for each in tree_leaves(found) if isinstance(each, fx.Node)]


def _may_write(node: fx.Node) -> bool:
    """Tell if a call with graphs of its own, which are TorchDynamo's, may write to what it reads."""
    owner, read = node.graph.owning_module, node.all_input_nodes
    held = [getattr(owner, str(each.target), None) for each in read if each.op == "get_attr"]
    graphs = [each for of in held if isinstance(of, nn.Module) for each in of.modules()]
    calls = [each for of in graphs if isinstance(of, fx.GraphModule) for each in of.graph.nodes]
    return name_of(node) == "triton_kernel_wrapper_mutation" or any(map(_is_in_place, calls))


def _is_in_place(node: fx.Node) -> bool:
    """Tell if a call of Python may write."""
    name = name_of(node)
    is_named = name in IN_PLACE or (name.endswith("_") and not name.endswith("__"))
    is_last = node.args[-1:] == (True,)  # where functions with an argument `inplace` have it
    is_given = is_last or node.kwargs.get("inplace") or node.kwargs.get("out") is not None
    return node.op.startswith("call_") and bool(is_named or is_given)


def _is_besides(argument: Any, node: fx.Node) -> bool:
    """Return True if an operator writes to an argument that is not its first in place."""
    is_written = argument.alias_info is not None and argument.alias_info.is_write
    return argument.name in STATISTICS or (is_written and not (argument.name == "self" and writes(node)))


def _is_read_before(written: fx.Node, node: fx.Node) -> bool:
    """Return True if a call in front of a node reads a value, what it is a view of, or another view."""
    left = [_whole(written)]
    while left:
        of = left.pop()
        for user in (each for each in of.users if each < node):
            if not is_view(user) and not (writes(user) and user.args[0] is of):
                return True
            left.append(user)
    return False


def _whole(of: fx.Node) -> fx.Node:
    """Return the value that a node is a view of, or writes to."""
    while (is_view(of) or writes(of)) and of.args and isinstance(of.args[0], fx.Node):
        of = of.args[0]
    return of


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
        is_new = of.op not in HELD and not is_view(of)
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
    if not isinstance(node.target, OpOverload):
        return node.target is operator.getitem or isinstance(node.target, HigherOrderOperator)
    aliases = [each.alias_info for each in node.target._schema.returns if each.alias_info is not None]
    return any(not each.is_write for each in aliases) or name_of(node) in VIEWS
