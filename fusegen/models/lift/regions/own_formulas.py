"""Calls whose formulas are in no table: those whose kernels read a layer, or a mode, when they run."""

import ast
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from fusegen.models.lift.labels import plain
from fusegen.models.lift.regions.aliases import unsafe
from fusegen.models.lift.regions.extremes import NAMES
from fusegen.models.reader.aten_calls import calls_of, layer_of, value_of
from fusegen.models.reader.formula import Unfit, substituted
from fusegen.models.reader.row_calls import BATCH_NORM, Reduced

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
OF_BATCH = "of_batch"  # the key of the calls of batch norms that kernels compute, in both modes
Value = Callable[[Any], ast.expr]


def own_formula(node: fx.Node, value: Value) -> dict[str, Any]:
    """Return the formula of a call, and what it reduces or drops; nothing for another call.

    Args:
        node: it.
        value: gives the formula of what the node reads.

    Raises:
        Unfit: a kernel has no such values.
    """
    if node.target in NAMES:
        return _extreme(node, value)
    if OF_BATCH in node.meta:
        return _of_batch(node, value)
    return _dropout(node, value)


def _extreme(node: fx.Node, value: Value) -> dict[str, Any]:
    """Return the values of `max` or `min` along a dimension.

    Raises:
        Unfit: they are of integers, or of a tensor of one dimension.
    """
    calls, x = calls_of(node), node.all_input_nodes[0]
    of = value_of(x)
    if calls is None or of.dim() < 2 or of.dtype not in DTYPES:
        raise Unfit("no kernel has it of integers or of a tensor of one dimension")
    dim = plain(calls.made[0].arguments["dim"]) % of.dim()
    body = ast.Call(ast.Name(NAMES[node.target]), [value(x)], [])
    return {"body": body, "rows": Reduced((dim,)), "reduces": x}


def _of_batch(node: fx.Node, value: Value) -> dict[str, Any]:
    """Return a batch norm, which a kernel gives the statistics of its layer."""
    [x] = node.all_input_nodes
    body = substituted(ast.parse(BATCH_NORM, mode="eval").body, {"input": value(x)})
    dims = (0, *range(2, value_of(x).dim()))
    return {"body": body, "rows": Reduced(dims, layer=str(node.target)), "reduces": x}


def _dropout(node: fx.Node, value: Value) -> dict[str, Any]:
    """Return a dropout whose mode is known when it runs; nothing for another call."""
    found = dropout_of(node)
    result = value_of(node)
    if found is None or unsafe(node) or not isinstance(result, Tensor) or result.dtype not in DTYPES:
        return {}
    x, p, mode = found
    return {"body": ast.Call(ast.Name("dropout"), [value(x), value(p)], []), "drops": mode} if mode else {}


def dropout_of(node: fx.Node) -> tuple[Any, Any, Any] | None:
    """Return what a dropout reads, its probability, and its mode, or the path of that."""
    layer = layer_of(node)
    if type(layer) is nn.Dropout and len(node.args) == 1:
        return node.args[0], layer.p, f"{node.target}.training"
    if node.target is not torch.ops.aten.dropout.default:
        return None
    x, p, mode = node.args
    if not isinstance(mode, fx.Node):
        return x, p, mode
    return (x, p, str(mode.target)) if mode.op == "get_attr" else None
