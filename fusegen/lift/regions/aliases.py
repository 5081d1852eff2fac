"""Writes in place: which of them a form without a write replaces."""

from __future__ import annotations

from torch import fx, nn

from fusegen.lift.graph import name_of, writes_in_place

VIEWS = frozenset(  # calls whose result may share the memory of what they read
    "detach contiguous unsqueeze squeeze view reshape view_as reshape_as transpose permute t flatten "
    "unflatten expand expand_as narrow select getitem chunk split unbind tensor_split hsplit vsplit "
    "to type type_as float double half bfloat16 cpu cuda swapaxes swapdims movedim moveaxis diagonal "
    "real imag positive pos getattr dropout alias unfold as_strided numpy_T T mT H adjoint ravel "
    "broadcast_to dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout atleast_1d "
    "atleast_2d atleast_3d unsafe_chunk unsafe_split requires_grad".split()
)
VIEW_LAYERS = (nn.Identity, nn.Flatten, nn.Unflatten, nn.modules.dropout._DropoutNd, nn.Sequential)


def layer_of(node: fx.Node) -> nn.Module | None:
    """The layer that a node calls."""
    owner = node.graph.owning_module
    if node.op != "call_module" or owner is None:
        return None
    return owner.get_submodule(str(node.target))


def writes(node: fx.Node) -> bool:
    """True if a node writes to its first argument."""
    if node.op == "call_module":
        return bool(getattr(layer_of(node), "inplace", False))
    return node.op in ("call_function", "call_method") and writes_in_place(node)


def unsafe(node: fx.Node) -> str:
    """Why a write in place cannot be a new value; empty where it can.

    What it writes to has to be a new value that nothing else reads, or the only view of one.
    """
    of = node.args[0] if node.args else None
    while isinstance(of, fx.Node) and of.op not in ("placeholder", "get_attr"):
        if len(of.users) > 1:
            return "what it writes to is read elsewhere"
        if not is_view(of):
            return ""
        of = of.args[0] if of.args else None
    return "it writes to an input or a parameter"


def is_view(node: fx.Node) -> bool:
    """True if the value of a node may share the memory of what it reads."""
    layer = layer_of(node)
    if layer is not None:
        return isinstance(layer, VIEW_LAYERS)
    return name_of(node).strip("_") in VIEWS
