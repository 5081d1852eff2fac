"""Gated feed-forward layers with one kernel for the activation and the product.

The class of such a layer is derived from its own, with another forward; the layer keeps its layers and its
state_dict. The activation in the layer is not called.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from fusegen.dropin.gates import Gate
from fusegen.dropin.table import module

ORIGINAL = "fusegen_original"  # the attribute of a derived class that holds the one it is derived from


def fuse(gate: Gate) -> None:
    """Give a layer the forward with one kernel."""
    names = (gate.gate, gate.up, gate.down)
    kind: Any = type(gate.holder)
    gate.holder.__class__ = _derived(kind, names, gate.gated)


def fused(layer: nn.Module) -> bool:
    """True if a layer has such a forward."""
    return hasattr(type(layer), ORIGINAL)


def separate(layer: nn.Module) -> None:
    """Give a layer its own forward again.

    A subclass of the layer's class, such as FSDP2 makes, becomes a subclass of the original class.
    """
    layer.__class__ = _without(type(layer))


def _without(kind: Any) -> Any:
    """A class without the forward with one kernel among its bases."""
    if ORIGINAL in vars(kind):
        return vars(kind)[ORIGINAL]
    bases = tuple(_without(base) if hasattr(base, ORIGINAL) else base for base in kind.__bases__)
    own = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    return type(kind)(kind.__name__, bases, own)


@functools.cache
def _derived(kind: Any, names: tuple[str, str, str], gated: str) -> Any:
    """The class of the layers of a class; it has the name of that, and pickle needs that alone."""
    function: Callable[..., Tensor] = getattr(module(gated), gated)
    original: Callable[..., Tensor] = kind.forward
    [_, argument] = inspect.signature(original).parameters

    @functools.wraps(original)
    def forward(layer: nn.Module, *given: Tensor, **named: Tensor) -> Tensor:
        if len(given) + len(named) != 1 or named.keys() - {argument}:
            return original(layer, *given, **named)  # which raises
        [x] = (*given, *named.values())
        gate, up, down = (getattr(layer, name) for name in names)
        result: Tensor = down(function(gate(x), up(x)))
        return result

    def reduced(layer: nn.Module, protocol: int) -> tuple[Any, ...]:
        return _again, (kind, names, gated), vars(layer)

    body = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    body |= {"forward": forward, "__reduce_ex__": reduced, ORIGINAL: kind}
    return type(kind.__name__, (kind,), body)


def _again(kind: Any, names: tuple[str, str, str], gated: str) -> nn.Module:
    """An object of a derived class, as `copy` and `pickle` make it."""
    derived = _derived(kind, names, gated)
    made: nn.Module = derived.__new__(derived)
    return made
