"""Gated feed-forward layers, down(act(gate(x)) * up(x)), with one kernel for activation and product.

They are found in their code. The class of such a layer is derived from its own, with another forward; the
layer keeps its layers and its state_dict. The activation in it is not called. Where it was replaced or
changed, or somebody watches it, the layer's own forward runs.
"""

import dis
import inspect
import itertools
import operator
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from operator import mul
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.models.patch.activations import function_of
from fusegen.models.patch.derived import APART, Plain, of_tensor
from fusegen.models.patch.library import module
from fusegen.models.reader.aten_calls import calls_in
from fusegen.models.reader.layer_calls import twin
from fusegen.models.reader.operator_call import Place

GATED: Mapping[str, str] = {"gelu": "geglu", "relu": "reglu", "silu": "swiglu"}  # by the activation
INPUT, PRODUCT = "the input", "the product"  # what a layer in a gated one reads
BASES, READ = (nn.Module, object), ("LOAD_ATTR", "LOAD_METHOD")
GLOBALS, VARIADIC = (torch, operator, mul, torch.mul), inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
SPECIAL = {
    f"__{name}__" for name in ("getattr", "getattribute", "reduce", "reduce_ex", "getstate", "setstate")
}
SPECIAL |= {"__getnewargs__", "__getnewargs_ex__", "__init_subclass__", "training"}


@dataclass(frozen=True)
class Gate:
    """A gated feed-forward layer."""

    # gate, up, down, act: the names of its layers
    gate: str
    up: str
    down: str
    act: str
    gated: str  # the module of the library for the activation and the product
    plain: Plain  # the activation as it is

    def __str__(self) -> str:
        """Return the formula, as a report shows it."""
        return f"{self.down}({self.act}({self.gate}(x)) * {self.up}(x))"

    @property
    def acts(self) -> tuple[str, ...]:
        """The activations that are in the kernel."""
        return (self.act,)

    def forward(self, kind: Any) -> Callable[..., Tensor]:
        """Return the forward with one kernel of layers of a class."""
        function: Callable[..., Tensor] = getattr(module(self.gated), self.gated)

        def run(layer: Any, x: Tensor) -> Any:
            names = (self.gate, self.up, self.down, self.act)
            gate, up, down, act = (getattr(layer, name) for name in names)
            return down(function(gate(x), up(x))) if self.plain.is_still(act) else APART

        return of_tensor(kind, run)


def gate_of(holder: nn.Module) -> Gate | None:
    """Return a layer as a gated one, if its forward has this form in each mode."""
    if len(holder._modules) != 4 or "forward" in vars(holder) or holder._parameters or holder._buffers:
        return None
    if not _plain(type(holder), {*holder._modules}):
        return None
    acts = [(name, layer) for name, layer in holder.named_children() if _activation(layer)]
    if len(acts) != 1:
        return None
    [(act, layer)] = acts
    ours, other = twin(holder), twin(holder)
    other.training = not holder.training
    names = _parts(ours, act)
    if names is None or names != _parts(other, act):
        return None
    function = function_of(layer)
    assert not isinstance(function, str)
    return Gate(*names, act, GATED[function.name], Plain.of(layer, function))


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


def _activation(layer: nn.Module) -> bool:
    """Return True for an activation that a gated module has, which does not write over its input."""
    function = function_of(layer)
    return not isinstance(function, str) and function.name in GATED and not function.is_in_place


def _parts(holder: nn.Module, act: str) -> tuple[str, str, str] | None:
    """Return the names of a layer's gate, other factor and last layer; None for a forward of another form.

    Args:
        holder: a copy, whose layers are replaced.
        act: the name of its activation.
    """
    names, read = [*holder._modules], list[tuple[str, str]]()

    def run(x: Tensor, *results: Tensor) -> Any:
        known = {id(each): name for name, each in zip((INPUT, *names), (x, *results), strict=True)}

        def layer(name: str, result: Tensor) -> Callable[[Tensor], Tensor]:
            def call(given: Tensor) -> Tensor:
                read.append((name, known.get(id(given), PRODUCT)))
                return result

            return call

        layers = {name: layer(name, each) for name, each in zip(names, results, strict=True)}
        vars(holder)["_modules"] = layers
        return type(holder).forward(holder, x)

    calls = calls_in(run, [torch.empty(2, 2, device="cpu")] * 5)
    by_name = dict(read)
    if calls is None or [call.name for call in calls.made] != ["mul"] or not len(read) == len(by_name) == 4:
        return None
    results = {name: Place(number) for number, name in enumerate((INPUT, *names))}
    factors, gate = [*calls.made[0].arguments.values()], by_name[act]
    up = next((name for name, of in by_name.items() if of == INPUT and name != gate), None)
    down = next((name for name, of in by_name.items() if of == PRODUCT), None)
    if up is None or down is None or by_name.get(gate) != INPUT or calls.result != results[down]:
        return None
    return (
        (gate, up, down) if factors in ([results[act], results[up]], [results[up], results[act]]) else None
    )
