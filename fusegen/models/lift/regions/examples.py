"""The value of each node of a graph on example inputs: shapes, dtypes and devices without memory."""

import logging
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from fusegen.models.lift.fx_graph import NO_GRAD, REPLACED
from fusegen.models.reader.aten_calls import value_of
from fusegen.models.reader.capture import TENSOR, without_memory

ITEMS = (operator.getitem, getattr)


class Failed(Exception):
    """A node of a graph whose operation raises."""

    def __init__(self, node: fx.Node, error: Exception) -> None:
        super().__init__(str(error))
        self.node, self.error = node, error


def propagate(
    module: nn.Module,  # holds the parameters and layers of the graph, which are only looked at
    graph: fx.Graph,  # it
    inputs: Sequence[Any],  # of the graph, in order; tensors of any device
) -> None:
    """Put the example value of each node in its ``meta``, and detach what is made without gradients.

    Raises:
        Failed: an operation of the graph raises.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    given = [_fake(mode, each) for each in inputs]
    log = logging.getLogger(
        fake_tensor.__name__
    )  # which logs a stack trace for an error that is reported in one sentence
    before, log.disabled = log.disabled, True
    try:
        with mode, torch.no_grad():
            _Examples(module, graph, mode, given).run(*given)
    finally:
        log.disabled = before
    stop_gradients(graph)


def stop_gradients(graph: fx.Graph) -> None:
    """Detach each tensor that is made without gradients where it is read with gradients."""
    for node in [*graph.nodes]:
        of = node.args[0] if node.target in ITEMS else None
        if isinstance(of, fx.Node) and NO_GRAD in of.meta:  # the item of a tuple is read later
            node.meta[NO_GRAD] = True
        if NO_GRAD not in node.meta or not node.op.startswith("call_"):
            continue
        readers = [user for user in node.users if NO_GRAD not in user.meta and user.target not in ITEMS]
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
        apart = node.graph.call_method("detach", (node,))
    apart.meta["val"], apart.stack_trace = value, node.stack_trace
    return apart


def _replace(node: fx.Node, other: Any, readers: Sequence[fx.Node]) -> None:
    """Let some readers of a node read another one, or a tuple of nodes."""
    for user in readers:
        given = fx.map_arg((user.args, user.kwargs), lambda each: other if each is node else each)
        user.args, user.kwargs = given


class _Examples(fx.Interpreter):
    """Runs a graph on fake tensors, parameters included, and keeps each value."""

    def __init__(
        self, module: nn.Module, graph: fx.Graph, mode: FakeTensorMode, inputs: Sequence[Any]
    ) -> None:
        super().__init__(module, garbage_collect_values=True, graph=graph)
        self.mode = mode
        self.on_meta = any(isinstance(each, Tensor) and each.is_meta for each in inputs)

    def run_node(self, n: fx.Node) -> Any:
        kept = n.meta.get(TENSOR)
        try:
            found = super().run_node(n) if kept is None else _fake(self.mode, self._placed(kept))
            if REPLACED in n.meta:
                _require_same_kind(found, value_of(n.all_input_nodes[0]))
        except Exception as error:
            raise Failed(n, error) from error
        n.meta["val"] = found
        return found

    def _placed(self, tensor: Tensor) -> Tensor:
        """Return a tensor that tracing made, without memory where the inputs have none."""
        return tensor.to("meta") if self.on_meta else tensor

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return _fake(self.mode, super().get_attr(target, args, kwargs))

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of a layer whose parameters and buffers are fake: nothing real is written to."""
        return without_memory(self.mode, self.fetch_attr(target), args, kwargs)


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


def _fake(mode: FakeTensorMode, value: Any) -> Any:
    return mode.from_tensor(value) if isinstance(value, Tensor) else value
