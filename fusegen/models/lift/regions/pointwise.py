"""Nodes of a graph as formulas of the nodes that they read."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from fusegen.models.lift.call_formula import Call, Unfit, fitted
from fusegen.models.lift.fx_graph import HOOKS, name_of
from fusegen.models.lift.labels import label_of, plain
from fusegen.models.lift.operations import MODULES, ROWS, number
from fusegen.models.lift.regions.aliases import layer_of, unsafe
from fusegen.models.lift.regions.examples import value_of

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
CONSTANT = "constant"  # the key of the number that a tensor of a graph holds
NODE, LABEL = "%", "$"  # before the name of a node, and the label of a number, in a formula
CONDITIONS = {"where": 0, "masked_fill": 1}  # operations that read a mask, and its place
MASK_WORDS = ("condition", "mask")
VIEWS = (torch.unsqueeze, Tensor.unsqueeze, Tensor.contiguous)  # rows of the table that move no numbers
SAME = frozenset(("clone", "detach", "pos", "positive", "alias"))  # results are their arguments


@dataclass(frozen=True)
class Pointwise:
    """A node that computes each element of its result from the same element of what it reads.

    Attributes:
        node: it.
        body: its formula. ``%name`` is a node, and ``$label`` a number that knows where it is from.
        is_value: it is more than its argument under another name, so that a region may end with it.
    """

    node: fx.Node
    body: ast.expr
    is_value: bool

    @property
    def reads(self) -> tuple[fx.Node, ...]:
        """The nodes in the formula, each once, in order."""
        known = {f"{NODE}{each.name}": each for each in self.node.all_input_nodes}
        names = [each.id for each in ast.walk(self.body) if isinstance(each, ast.Name)]
        return tuple(dict.fromkeys(known[name] for name in names if name in known))


def pointwise(node: fx.Node) -> Pointwise:
    """Return a node as a formula.

    Args:
        node: with example values in its ``meta`` and in those of the nodes that it reads.

    Raises:
        Unfit: it is no pointwise operation of floats that the language has, in a clause.
    """
    call = called(node)
    if call is None or call.target not in ROWS or call.target in VIEWS:
        raise Unfit(_unknown(node))
    if unsafe(node):
        raise Unfit(unsafe(node))
    body = fitted(ROWS[call.target], call, _value)
    _check_tensors(node)
    is_value = name_of(node).strip("_") not in SAME and not isinstance(body, ast.Name)
    return Pointwise(node, body, is_value)


def constant_of(node: fx.Node) -> Any:
    """Return the number of a tensor that the graph makes of one; None for other nodes."""
    if node.op == "call_function" and node.target is torch.tensor and not isinstance(node.args[0], fx.Node):
        found = node.args[0]
        if isinstance(found, int | float) and not isinstance(found, bool):
            return found
    return node.meta.get(CONSTANT)


def is_mask(node: fx.Node) -> bool:
    """Return True if the value of a node is a tensor of truths."""
    value = value_of(node)
    return isinstance(value, Tensor) and value.dtype is torch.bool


def called(node: fx.Node) -> Call | None:
    """Return the function that a node calls, as the table knows it; None where it calls none."""
    keywords = dict(node.kwargs)
    if node.op == "call_module":
        layer = layer_of(node)
        if layer is None or type(layer) not in MODULES or any(getattr(layer, hooks) for hooks in HOOKS):
            return None
        target, attributes = MODULES[type(layer)]
        return Call(target, node.args, {**{each: getattr(layer, each) for each in attributes}, **keywords})
    if node.op == "call_method":
        return Call(getattr(Tensor, str(node.target), operator.not_), node.args, keywords)
    if isinstance(node.target, torch._ops.OpOverload):
        return Call(_of_aten(node.target), node.args, keywords)
    return Call(node.target, node.args, keywords) if callable(node.target) else None


def _of_aten(target: torch._ops.OpOverload) -> Callable[..., Any]:
    """Return the function of PyTorch that an operator of ATen implements, by its name."""
    name = target.overloadpacket.__name__
    places = (torch, F, Tensor)
    found = (getattr(place, name, None) for place in places)
    return next((each for each in found if each in ROWS), operator.not_)


def _check_tensors(node: fx.Node) -> None:
    """Refuse dtypes and devices that one kernel cannot take.

    Raises:
        Unfit: they are of several kinds, or no floats.
    """
    result = value_of(node)
    if not isinstance(result, Tensor):
        raise Unfit("it computes no tensor")
    read = [each for each in node.all_input_nodes if constant_of(each) is None]
    floats = [each for each in read if not (is_mask(each) and _as_condition(node, each))]
    values = [value_of(each) for each in floats]
    if result.dtype is not torch.bool:
        values.append(result)
    kinds = {(each.dtype, each.device) for each in values if isinstance(each, Tensor)}
    others = [each for each in kinds if each[0] not in DTYPES]
    if others:
        raise Unfit(
            f"it computes with {str(others[0][0]).removeprefix('torch.')}, and a kernel with floats"
        )
    if len(kinds) > 1:
        raise Unfit("its tensors are of several dtypes or devices")
    if not any(isinstance(value_of(each), Tensor) for each in read):
        raise Unfit("it reads no tensor")


def _as_condition(node: fx.Node, mask: fx.Node) -> bool:
    """Return True if a node reads a mask as the condition of a choice, and in no other place."""
    place = CONDITIONS.get(name_of(node).strip("_").split(".")[0])
    if place is None:
        return False
    given = [*node.args, *node.kwargs.values()]
    of = (
        node.args[place] if len(node.args) > place else next(filter(None, map(node.kwargs.get, MASK_WORDS)))
    )
    return of is mask and sum(each is mask for each in given) == 1


def _value(value: Any) -> ast.expr:
    """Return an argument of a node in a formula.

    Raises:
        Unfit: it is neither a tensor nor a number.
    """
    if isinstance(value, fx.Node):
        constant = constant_of(value)
        if constant is None and not isinstance(value_of(value), Tensor):
            raise Unfit(f"it reads the number {value.name}, which forward computes")
        return ast.Name(f"{NODE}{value.name}") if constant is None else _value(constant)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unfit(f"{value!r} is no number")
    label = label_of(value)
    if label:
        return ast.Name(f"{LABEL}{label}")
    try:
        return number(plain(value))
    except ValueError as error:
        raise Unfit(str(error)) from None


def _unknown(node: fx.Node) -> str:
    """Return why an operation without a row has no place in a formula."""
    if node.op == "call_module":
        layer = layer_of(node)
        hooked = type(layer) in MODULES
        return "it has hooks" if hooked else f"{type(layer).__name__} is a layer"
    return "the language has no such operation"
