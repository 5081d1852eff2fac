"""Gated feed-forward layers with one kernel for the activation and the product.

The class of such a layer is derived from its own, with another forward; the layer keeps its layers and its
state_dict. The activation in it is not called. Where it was replaced or changed, or somebody watches it,
the layer's own forward runs.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from fusegen.models.patch.derived import ORIGINAL, Plain
from fusegen.models.patch.gates import Gate
from fusegen.models.patch.library import module


def fuse(gate: Gate) -> None:
    """Give a layer the forward with one kernel."""
    names = (gate.gate, gate.up, gate.down, gate.act)
    kind: Any = type(gate.holder)
    gate.holder.__class__ = _derived(kind, names, gate.gated, gate.plain)


@functools.cache
def _derived(kind: Any, names: tuple[str, str, str, str], gated: str, plain: Plain) -> Any:
    """Return the class of the layers of a class, under its name; pickle needs these arguments alone."""
    function: Callable[..., Tensor] = getattr(module(gated), gated)
    original: Callable[..., Tensor] = kind.forward
    [_, argument] = inspect.signature(original).parameters

    @functools.wraps(original)
    def forward(layer: nn.Module, *given: Tensor, **named: Tensor) -> Tensor:
        gate, up, down, act = (getattr(layer, name) for name in names)
        result: Tensor
        usual = len(given) + len(named) == 1 and not named.keys() - {argument}
        if not usual or kind.forward is not original or not plain.is_still(act):
            result = kind.forward(layer, *given, **named)
            return result
        [x] = (*given, *named.values())
        result = down(function(gate(x), up(x)))
        return result

    def reduced(layer: nn.Module, protocol: int) -> tuple[Any, ...]:
        return _again, (kind, names, gated, plain), vars(layer)

    body = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    body |= {"forward": forward, "__reduce_ex__": reduced, ORIGINAL: kind}
    return type(kind.__name__, (kind,), body)


def _again(kind: Any, names: tuple[str, str, str, str], gated: str, plain: Plain) -> nn.Module:
    """Make an object of a derived class, as `copy` and `pickle` do."""
    derived = _derived(kind, names, gated, plain)
    made: nn.Module = derived.__new__(derived)
    return made
