"""The example values of a graph: what a forward raises, and what is made without gradients."""

import logging
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from fusegen.models.lift.fx_graph import NO_GRAD, REPLACED
from fusegen.models.reader.aten_calls import value_of
from fusegen.models.reader.capture import without_memory


class Failed(Exception):
    """A node of a graph whose operation raises."""

    def __init__(self, node: fx.Node, error: Exception) -> None:
        super().__init__(str(error))
        self.node, self.error = node, error


def raised(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Exception | None:
    """Return what a model raises on tensors without memory of the sizes of its inputs."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    log = logging.getLogger(
        fake_tensor.__name__
    )  # which logs a stack trace for an error that is reported in one sentence
    before, log.disabled = log.disabled, True
    try:
        with mode, torch.no_grad():
            given: Any = tree_map_only(Tensor, mode.from_tensor, (args, dict(kwargs)))
            without_memory(mode, model, *given)
    except Exception as error:
        return error
    finally:
        log.disabled = before
    return None


def stop_gradients(graph: fx.Graph) -> None:
    """Detach each tensor that is made without gradients where it is read with gradients."""
    for node in [*graph.nodes]:
        of = node.args[0] if node.target is operator.getitem else None
        if isinstance(of, fx.Node) and NO_GRAD in of.meta:  # the item of a tuple is read later
            node.meta[NO_GRAD] = True
        if NO_GRAD not in node.meta or not node.op.startswith("call_"):
            continue
        readers = [
            user for user in node.users if NO_GRAD not in user.meta and user.target is not operator.getitem
        ]
        if readers:
            _replace(node, _detached(node, value_of(node), node.next), readers)


def _detached(node: fx.Node, value: Any, behind: fx.Node) -> Any:
    """A node detached, or a tuple of the detached items of one; new nodes are in front of another."""
    if isinstance(value, tuple | list):
        items = []
        for place, each in enumerate(value):
            with node.graph.inserting_before(behind):
                item = node.graph.call_function(operator.getitem, (node, place))
            item.meta["val"], item.stack_trace = each, node.stack_trace
            items.append(_detached(item, each, behind))
        return type(value)(items) if type(value) in (tuple, list) else tuple(items)
    if not isinstance(value, Tensor) or not (value.is_floating_point() or value.is_complex()):
        return node
    with node.graph.inserting_before(behind):
        apart = node.graph.call_function(torch.ops.aten.detach.default, (node,))
    apart.meta["val"], apart.stack_trace = value, node.stack_trace
    return apart


def _replace(node: fx.Node, other: Any, readers: Sequence[fx.Node]) -> None:
    """Let some readers of a node read another one, or a tuple of nodes."""
    for user in readers:
        given = fx.map_arg((user.args, user.kwargs), lambda each: other if each is node else each)
        user.args, user.kwargs = given


def check_replaced(graph: fx.Graph) -> None:
    """Check the new tensors that a graph with example values makes in the place of writes.

    Raises:
        Failed: one has another dtype or shape than what is written to.
    """
    for node in graph.nodes:
        if REPLACED not in node.meta:
            continue
        args, kwargs = fx.map_arg((node.args, node.kwargs), value_of)
        try:
            _require_same_kind(node.target(*args, **kwargs), args[0])
        except Exception as error:
            raise Failed(node, error) from error


def _require_same_kind(new: Tensor, written: Tensor) -> None:
    """Refuse a new tensor that is of another dtype or shape than the one that forward writes to.

    Raises:
        TypeError: it is.
    """
    if (new.dtype, new.shape) != (written.dtype, written.shape):
        raise TypeError(f"a write in place keeps {written.dtype}, and its operands make {new.dtype}")
