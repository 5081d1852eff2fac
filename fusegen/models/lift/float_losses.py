"""Losses of classes whose logits forward casts to float32: kernels read the logits of 16 bits as they are.

``F.cross_entropy(logits.float(), target)`` copies the logits, and its gradient is one more copy. A module
of the library computes the same in float32 of the logits, and writes the gradient in their dtype.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from fusegen.models.lift.fx_graph import name_of
from fusegen.models.lift.regions.aliases import unsafe, writes
from fusegen.models.patch.library import module
from fusegen.models.reader.aten_calls import hint, value_of
from fusegen.models.reader.row_gains import GAINS, WRITTEN_OUT

LOSSES = {"cross_entropy_loss": "cross_entropy", "nll_loss_nd": "nll"}  # operators
REDUCTIONS = ("none", "mean", "sum")  # by their numbers in ATen
VIEWS = frozenset(
    "view reshape slice select narrow transpose permute flatten contiguous unsqueeze squeeze".split()
)
CASTS = ("to", "_to_copy")
DTYPES = (torch.float16, torch.bfloat16)


def put_losses_in(graph: fx.Graph, least_passes: int) -> tuple[fx.Node, ...]:
    """Let losses read logits of 16 bits without a cast, where that is known to be faster.

    Args:
        graph: of operators, with example values.
        least_passes: of eager over memory, from which on a region has a kernel: 1 for every one.

    Returns:
        The losses.
    """
    found = []
    for node in [*graph.nodes]:
        path = _path(node)
        if path and (least_passes < 2 or _is_faster(node)):
            _replace(node, path)
            found.append(node)
    return tuple(found)


def function_of(name: str) -> Callable[..., Tensor]:
    """Return the function of the library that a loss has in float32."""
    found: Callable[..., Tensor] = getattr(module(f"rows.{name}_in_float32"), f"{name}_in_float32")
    return found


def is_loss(node: fx.Node) -> bool:
    """Return True for the call of a function of the library that a loss has in float32."""
    return node.op == "call_function" and any(node.target is function_of(name) for name in LOSSES.values())


def _path(loss: fx.Node) -> list[fx.Node]:
    """Return the nodes from a loss that a kernel takes back to the cast of its logits; none for others."""
    if not isinstance(loss.target, OpOverload) or name_of(loss) not in LOSSES or not _is_plain(loss):
        return []
    path, node = [], loss.args[0]
    while isinstance(node, fx.Node) and isinstance(node.target, OpOverload) and len(node.users) == 1:
        path.append(node)
        if name_of(node) in CASTS:
            return path if _is_cast(node) and not _is_written_behind(node) else []
        node = node.args[0] if name_of(node) in VIEWS else None
    return []


def _is_plain(loss: fx.Node) -> bool:
    """Return True for a loss of rows of classes, without weights and smoothing."""
    given = _arguments(loss)
    x, target = (value_of(each) for each in loss.args[:2] if isinstance(each, fx.Node))
    return (
        given["weight"] is None
        and not given.get("label_smoothing")
        and (x.dim(), target.dim(), x.dtype, target.dtype) == (2, 1, torch.float32, torch.int64)
    )


def _is_cast(node: fx.Node) -> bool:
    """Return True for a cast of 16 bits to float32, on one device."""
    read, made = value_of(node.all_input_nodes[0]), value_of(node)
    return read.dtype in DTYPES and (made.dtype, made.device) == (torch.float32, read.device)


def _is_written_behind(cast: fx.Node) -> bool:
    """Tell if a call behind a cast may write to what it copies, which the gradient reads, too."""
    behind = itertools.takewhile(lambda each: each is not cast, reversed(cast.graph.nodes))
    return any(writes(each) or unsafe(each) for each in behind)


def _is_faster(loss: fx.Node) -> bool:
    """Tell if the kernel of a loss is known to be faster than PyTorch's operations."""
    x: Tensor = value_of(loss.all_input_nodes[0])
    sizes, name = [*map(hint, x.shape)], LOSSES[name_of(loss)]
    keys = [(x.device.type, name, WRITTEN_OUT, DTYPES[0].itemsize, recorded) for recorded in (False, True)]
    gains = [GAINS.get(key) for key in keys]
    return all(gain is not None and gain.takes(sizes[-1], math.prod(sizes)) for gain in gains)


def _replace(loss: fx.Node, path: Sequence[fx.Node]) -> None:
    """Let a loss call the library's function of the logits, of which the views between them are taken."""
    given, name = _arguments(loss), LOSSES[name_of(loss)]
    *views, cast = path
    logits = cast.all_input_nodes[0]
    cast.replace_all_uses_with(logits)
    cast.graph.erase_node(cast)
    for view in views:
        view.meta = {**view.meta, "val": value_of(view).to(value_of(logits).dtype)}
        if view.target is torch.ops.aten.view.default:  # the cast is dense where the logits may not be
            view.target = torch.ops.aten.reshape.default
    loss.target = function_of(name)
    loss.args = (*loss.args[:2], REDUCTIONS[int(given["reduction"])], given["ignore_index"])
    loss.kwargs = {}


def _arguments(loss: fx.Node) -> dict[str, Any]:
    """Return the arguments of an operator by name, with its defaults."""
    assert isinstance(loss.target, OpOverload)
    schema = loss.target._schema.arguments
    usual = {each.name: each.default_value for each in schema if each.has_default_value()}
    return {**usual, **dict(zip((each.name for each in schema), loss.args, strict=False)), **loss.kwargs}
