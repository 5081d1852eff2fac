"""Calls of two graphs of a forward, in training and in evaluation, that are one."""

from collections.abc import Container, Mapping
from typing import Any

import torch
from torch import fx

from fusegen.models.lift.regions.pointwise import CONSTANT
from fusegen.models.reader.capture import NO_GRAD, STACK, TENSOR

CALL = "call"  # the key of the call that made a tensor, as text
TRAINING = "training"  # the attribute of a module


def alike(one: fx.Node, other: fx.Node, read: Container[str]) -> bool:
    """True if two nodes are one call, whose arguments are equal or the mode that its module reads."""
    if (one.op, one.target, one.name) != (other.op, other.target, other.name):
        return False
    if (NO_GRAD in one.meta) != (NO_GRAD in other.meta) or not _equal(one.meta, other.meta):
        return False
    if one.kwargs.keys() != other.kwargs.keys() or len(one.args) != len(other.args):
        return False
    pairs = [
        *zip(one.args, other.args, strict=True),
        *zip(one.kwargs.values(), other.kwargs.values(), strict=True),
    ]
    reads = _holder(one) in read
    return all(repr(a) == repr(b) or (reads and a is True and b is False) for a, b in pairs)


def _equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if the tensors that forward made for two nodes have one dtype, one device and equal elements."""
    a, b = one.get(TENSOR), other.get(TENSOR)
    if a is None or b is None:
        return a is b
    kinds = [(each.dtype, each.device, each.shape) for each in (a, b)]
    made = [[own.get(key) for key in (CALL, CONSTANT)] for own in (one, other)]
    return kinds[0] == kinds[1] and made[0] == made[1] and (a.is_meta or torch.equal(a, b))


def merge(one: fx.Node, other: fx.Node) -> None:
    """Read the mode where a node has it as an argument."""
    pairs = [
        *zip(one.args, other.args, strict=True),
        *zip(one.kwargs.values(), other.kwargs.values(), strict=True),
    ]
    if all(repr(a) == repr(b) for a, b in pairs):
        return
    with one.graph.inserting_before(one):
        mode = one.graph.create_node("get_attr", f"{_holder(one)}.{TRAINING}".lstrip("."))
    mode.meta["val"] = True
    values = [a if repr(a) == repr(b) else mode for a, b in pairs]
    count = len(one.args)
    one.args, one.kwargs = tuple(values[:count]), dict(zip(one.kwargs, values[count:], strict=True))


def _holder(node: fx.Node) -> str:
    """Return the path of the module in whose forward a node was made."""
    stack = list(node.meta.get(STACK, {}).values())
    return str(stack[-1][0]) if stack else ""
