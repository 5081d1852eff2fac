"""The gated feed-forward layers of a model, down(act(gate(x)) * up(x)), found in their code."""

from __future__ import annotations

import copy
import dis
import inspect
import itertools
import operator
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from operator import mul
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import fx, nn

from fusegen.models.lift.tracer import OneThread
from fusegen.models.patch.activations import reasons, row_of

GATED: Mapping[str, str] = {"gelu": "geglu", "relu": "reglu", "silu": "swiglu"}  # by the activation
PRODUCTS = {("call_function", mul), ("call_function", torch.mul), ("call_method", "mul")}
BASES, READ = (nn.Module, object), ("LOAD_ATTR", "LOAD_METHOD")
GLOBALS, VARIADIC = (torch, operator, mul, torch.mul), inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
SPECIAL = {
    f"__{name}__" for name in ("getattr", "getattribute", "reduce", "reduce_ex", "getstate", "setstate")
}
SPECIAL |= {"__getnewargs__", "__getnewargs_ex__", "__init_subclass__", "training"}


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
        """Return the layer, as a report shows it."""
        formula = f"{self.down}({self.act}({self.gate}(x)) * {self.up}(x))"
        return f"{type(self.holder).__name__}, {formula}"


def gates(model: nn.Module) -> Iterator[Gate]:
    """Yield the gated feed-forward layers of a model that a kernel can compute.

    Args:
        model: it; each layer with a forward of another form is left out.
    """
    for path, holder in model.named_modules():
        found = _gate(path, holder)
        if found is not None:
            yield found


class _Tracer(OneThread):
    """Records the calls of a layer's own layers, and looks into none of them."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return True for each."""
        return True


def _gate(path: str, holder: nn.Module) -> Gate | None:
    """Return a layer as a gated one, if its forward has this form in each mode."""
    acts = [name for name, layer in holder.named_children() if _activation(layer) in GATED]
    if len(acts) != 1 or len(holder._modules) != 4 or "forward" in vars(holder):
        return None
    [act] = acts
    layer = holder._modules[act]
    plain = not holder._parameters and not holder._buffers and _plain(type(holder), {*holder._modules})
    if layer is None or [*reasons(layer)] or not plain:
        return None
    other = copy.copy(holder)
    other.training = not holder.training
    found = set()
    for each, gradients in itertools.product((holder, other), (False, True)):
        with torch.set_grad_enabled(gradients):
            found.add(_parts(each, act))
    names = found.pop() if len(found) == 1 else None
    return Gate(path, holder, *names, act, GATED[_activation(layer)]) if names else None


def _plain(kind: Any, layers: Set[str]) -> bool:
    """Tell if a forward reads one tensor, these layers and `training`, and calls a product at most.

    Its code is read, not run. The class is read, copied and derived from as any of nn.Module's.
    """
    body: Any = kind.forward
    if type(kind) is not type or not isinstance(body, FunctionType):
        return False
    code, found = body.__code__, body.__globals__
    own = any(vars(base).keys() & (SPECIAL | layers) for base in kind.__mro__ if base not in BASES)
    inner = code.co_freevars or any(isinstance(each, CodeType) for each in code.co_consts)
    others = code.co_posonlyargcount or code.co_kwonlyargcount or code.co_flags & VARIADIC
    if own or inner or others or code.co_argcount != 2:
        return False
    itself = code.co_varnames[0]
    for before, step in itertools.pairwise(dis.get_instructions(code)):
        of_itself = before.opname.startswith("LOAD_FAST") and before.argval == itself
        names = layers | {"training"} if of_itself else {"mul"}
        known = step.opname in READ and step.argval in names
        known |= step.opname == "LOAD_GLOBAL" and any(found.get(step.argval) is each for each in GLOBALS)
        if step.opcode in dis.hasname and not known:
            return False
    return True


def _activation(layer: nn.Module) -> str:
    """Return the module of the library for a layer; nothing where it has none, or writes over its input."""
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
    """Return the calls of a layer's forward; None where it cannot be recorded."""
    try:
        return _Tracer().trace(holder)
    except Exception:  # of a forward that reads values, shapes or devices: it has another form
        return None
