"""Gated feed-forward layers, down(act(gate(x)) * up(x)): one kernel for the activation and the product.

The layer keeps its class, its layers and its state_dict: `forward` becomes an attribute of it, and the
activation in it is not called.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import mul

import torch
from torch import Tensor, fx, nn

from fusegen.dropin.table import module, reasons, row_of

GATED: Mapping[str, str] = {"gelu": "geglu", "relu": "reglu", "silu": "swiglu"}  # by the activation
PRODUCTS = {("call_function", mul), ("call_function", torch.mul), ("call_method", "mul")}


@dataclass(frozen=True)
class Gate:
    """A gated feed-forward layer.

    Attributes:
        path: in the model.
        holder: the layer.
        gate, up, down, act: the names of its layers.
        gated: the module of the library for the activation and the product.
    """

    path: str
    holder: nn.Module
    gate: str
    up: str
    down: str
    act: str
    gated: str

    def __str__(self) -> str:
        """The layer, as a report shows it."""
        formula = f"{self.down}({self.act}({self.gate}(x)) * {self.up}(x))"
        return f"{type(self.holder).__name__}, {formula}"


def gates(model: nn.Module) -> Iterator[Gate]:
    """The gated feed-forward layers of a model that a kernel can compute.

    Args:
        model: it; each layer with a forward of another form is left out.
    """
    for path, holder in model.named_modules():
        found = _gate(path, holder)
        if found is not None:
            yield found


def fuse(gate: Gate) -> None:
    """Give a layer the forward with one kernel for the activation and the product."""
    function: Callable[..., Tensor] = getattr(module(gate.gated), gate.gated)
    names = (gate.gate, gate.up, gate.down)
    vars(gate.holder)["forward"] = functools.partial(forward, gate.holder, names, function)


def fused(layer: nn.Module) -> bool:
    """Tell if a layer has such a forward."""
    found = vars(layer).get("forward")
    return isinstance(found, functools.partial) and found.func is forward


def forward(
    holder: nn.Module,
    names: tuple[str, str, str],
    function: Callable[..., Tensor],
    *given: Tensor,
    **named: Tensor,
) -> Tensor:
    """The layer's value.

    Args:
        holder: the layer.
        names: of its layers for the gate, for the other factor, and behind the product.
        function: the activation of the gate, times the other factor.
        *given: the tensor that the layer reads.
        **named: the same, by its name.
    """
    [x] = (*given, *named.values())
    gate, up, down = (getattr(holder, name) for name in names)
    result: Tensor = down(function(gate(x), up(x)))
    return result


class _Tracer(fx.Tracer):
    """Records the calls of a layer's own layers, and looks into none of them."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """True for each."""
        return True


def _gate(path: str, holder: nn.Module) -> Gate | None:
    """A layer as a gated one, if its forward has this form in training and in evaluation."""
    acts = [name for name, layer in holder.named_children() if _activation(layer) in GATED]
    if len(acts) != 1 or len(holder._modules) != 4 or "forward" in vars(holder):
        return None
    [act] = acts
    layer = holder._modules[act]
    if layer is None or holder._parameters or holder._buffers or [*reasons(layer)]:
        return None
    other = copy.copy(holder)
    other.training = not holder.training
    found = {_parts(each, act) for each in (holder, other)}
    names = found.pop() if len(found) == 1 else None
    return Gate(path, holder, *names, act, GATED[_activation(layer)]) if names else None


def _activation(layer: nn.Module) -> str:
    """The module of the library for a layer; nothing where it has none, or writes over its input."""
    row = row_of(layer)
    return "" if row is None or getattr(layer, "inplace", False) else row.name(layer) or ""


def _parts(holder: nn.Module, act: str) -> tuple[str, str, str] | None:
    """The names of a layer's gate, other factor and last layer; None where its forward has another form."""
    graph = _traced(holder)
    calls = [node for node in graph.nodes if node.op not in ("placeholder", "output")] if graph else []
    inputs = [node for node in graph.nodes if node.op == "placeholder"] if graph else []
    products = [node for node in calls if (node.op, node.target) in PRODUCTS and len(node.args) == 2]
    by_name = {node.target: node for node in calls if node.op == "call_module"}
    if (
        len(calls) != 5
        or len(inputs) != 1
        or len(products) != 1
        or by_name.keys() != holder._modules.keys()
    ):
        return None
    [product], [x] = products, inputs
    activated = by_name[act]
    up = next((node for node in product.args if node is not activated), None)
    down = next((node for node in by_name.values() if node.args == (product,)), None)
    gate = activated.args[0] if len(activated.args) == 1 else None
    if activated not in product.args or up is None or down is None or gate is None:
        return None
    plain = all(not node.kwargs for node in calls) and gate.args == up.args == (x,)
    returned = [node.args[0] for node in down.users] == [down]
    return (gate.target, up.target, down.target) if plain and returned else None


def _traced(holder: nn.Module) -> fx.Graph | None:
    """The calls of a layer's forward; None where it cannot be recorded."""
    try:
        return _Tracer().trace(holder)
    except Exception:  # of a forward that reads values, shapes or devices: it has another form
        return None
