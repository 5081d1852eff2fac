"""The value of each node of a graph on example inputs: shapes, dtypes and devices without memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

TENSOR = "tensor"  # the key of a tensor that tracing made, which is no attribute of the module
KEYS = ("val", "example_value")  # of node.meta: of torch.export and AOTAutograd, and of Dynamo


def value_of(node: fx.Node) -> Any:
    """The example value of a node; None where it has none."""
    return next((node.meta[key] for key in KEYS if node.meta.get(key) is not None), None)


def propagate(module: nn.Module, graph: fx.Graph, inputs: Sequence[Any]) -> None:
    """Put the example value of each node in its ``meta``.

    Args:
        module: holds the parameters and layers of the graph, which are only looked at.
        graph: it.
        inputs: of the graph, in order; tensors of any device.

    Raises:
        Exception: what an operation of the graph raises.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    given = [_fake(mode, each) for each in inputs]
    with mode, torch.no_grad():
        _Examples(module, graph, mode).run(*given)


class _Examples(fx.Interpreter):
    """Runs a graph on fake tensors, parameters included, and keeps each value."""

    def __init__(self, module: nn.Module, graph: fx.Graph, mode: FakeTensorMode) -> None:
        super().__init__(module, garbage_collect_values=True, graph=graph)
        self.mode = mode

    def run_node(self, n: fx.Node) -> Any:
        kept = n.meta.get(TENSOR)
        found = super().run_node(n) if kept is None else _fake(self.mode, kept)
        n.meta["val"] = found
        return found

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return _fake(self.mode, super().get_attr(target, args, kwargs))

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of a layer whose parameters and buffers are fake: nothing real is written to."""
        layer = self.fetch_attr(target)
        state = {name: _fake(self.mode, tensor) for name, tensor in _tensors(layer)}
        return torch.func.functional_call(layer, state, args, kwargs, tie_weights=False)


def _tensors(layer: nn.Module) -> list[tuple[str, Tensor]]:
    return [*layer.named_parameters(), *layer.named_buffers()]


def _fake(mode: FakeTensorMode, value: Any) -> Any:
    return mode.from_tensor(value) if isinstance(value, Tensor) else value
