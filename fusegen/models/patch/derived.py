"""Classes of layers that are derived from the layers' own, with another forward, and the way back."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn
from torch.nn.modules import module as hooks

from fusegen.models.patch.activations import HOOKS, Function
from fusegen.models.reader.layer_calls import attributes
from fusegen.runtime.holders import is_watched

ORIGINAL = "fusegen_original"  # the attribute of a derived class that holds the one it is derived from

PLAN = "fusegen_plan"  # the one that holds its plan


class Plan(Hashable, Protocol):
    """Another forward of layers; it has a hash and can be pickled."""

    def forward(self, kind: Any) -> Callable[..., Any]:
        """Return the forward of layers of a class, while the class has its own."""


@dataclass(frozen=True)
class Found:
    """The kernels of a layer.

    Attributes:
        lines: what is replaced, the module in its place, and where alone that runs.
        join: gives the layer its kernels.
    """

    lines: Sequence[tuple[str, str, str]]
    join: Callable[[nn.Module], None]

    @classmethod
    def of(cls, plan: Plan, *lines: tuple[str, str, str]) -> Found:
        """Describe a layer with the forward of a plan."""
        return cls(lines, lambda layer: derive(layer, plan))


APART = object()  # what a function returns where the own forward is to run


def of_tensor(kind: Any, run: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return a forward of a layer and a tensor, which is the class's own where a function returns APART."""
    own: Callable[..., Any] = kind.forward
    [_, argument] = inspect.signature(own).parameters

    def forward(layer: nn.Module, *given: Any, **named: Any) -> Any:
        is_usual = len(given) + len(named) == 1 and not named.keys() - {argument}
        result = run(layer, *given, *named.values()) if is_usual else APART
        return own(layer, *given, **named) if result is APART else result

    return forward


def derive(layer: nn.Module, plan: Plan) -> None:
    """Give a layer a class derived from its own, with the forward of a plan."""
    kind: Any = type(layer)
    layer.__class__ = derived(kind, plan)


@functools.cache
def derived(kind: Any, plan: Plan) -> Any:
    """Return the class of the layers of a class, under its name; pickle needs these arguments alone."""
    original, changed = kind.forward, plan.forward(kind)

    @functools.wraps(original)
    def forward(layer: nn.Module, *given: Any, **named: Any) -> Any:
        run = changed if kind.forward is original else kind.forward
        return run(layer, *given, **named)

    def reduced(layer: nn.Module, protocol: int) -> tuple[Any, ...]:
        return _again, (kind, plan), vars(layer)

    body = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    body |= {"forward": forward, "__reduce_ex__": reduced, ORIGINAL: kind, PLAN: plan}
    return type(kind.__name__, (kind,), body)


def _again(kind: Any, plan: Plan) -> nn.Module:
    """Make an object of a derived class, as `copy` and `pickle` do."""
    of = derived(kind, plan)
    made: nn.Module = of.__new__(of)
    return made


def is_derived(layer: nn.Module) -> bool:
    """Tell if a layer has such a class."""
    return hasattr(type(layer), ORIGINAL)


def plan_of(layer: nn.Module) -> Any:
    """Return the plan of a layer of a derived class; None of any other."""
    return getattr(type(layer), PLAN, None)


def bare(kind: Any) -> Any:
    """Return the class that a derived one is derived from; any other as it is."""
    return getattr(kind, ORIGINAL, kind)


def has_hooks(layer: nn.Module) -> bool:
    """Tell if a call of a layer runs hooks."""
    own: Any = hooks
    return any(getattr(layer, name) for name in HOOKS) or bool(own._has_any_global_hook())


def is_like(one: Any, x: Tensor) -> bool:
    """Tell if a kernel takes a tensor beside another one: both are contiguous, and alike in all else."""
    if one.__class__ is not Tensor or not one.is_contiguous() or not x.is_contiguous():
        return False
    return (one.shape, one.dtype, one.device) == (x.shape, x.dtype, x.device)


def restore(layer: nn.Module) -> None:
    """Give a layer its own class again.

    A subclass of the layer's class, such as FSDP2 makes, becomes a subclass of the original class.
    """
    layer.__class__ = _without(type(layer))


def _without(kind: Any) -> Any:
    """Return a class without derived ones among its bases."""
    if ORIGINAL in vars(kind):
        return vars(kind)[ORIGINAL]
    bases = tuple(_without(base) if hasattr(base, ORIGINAL) else base for base in kind.__bases__)
    own = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    return type(kind)(kind.__name__, bases, own)


@dataclass(frozen=True)
class Plain:
    """An activation as it was when a kernel was chosen for it."""

    kind: type[nn.Module]  # its class
    decides: tuple[tuple[str, Any], ...]  # its attributes that decide the function
    numbers: tuple[str, ...]  # the names of those that are arguments of the kernel

    @classmethod
    def of(cls, activation: nn.Module, function: Function) -> Plain:
        """Describe an activation that computes a function."""
        numbers = tuple(name for name, _ in function.numbers)
        others = [each for each in attributes(activation) if each[0] not in (*numbers, "inplace")]
        return cls(type(activation), tuple(others), numbers)

    def is_still(self, activation: nn.Module | None) -> bool:
        """Tell if a layer is such an activation, and nobody watches it."""
        if activation is None or type(activation) is not self.kind or is_watched(activation):
            return False
        same = all(getattr(activation, name, None) == value for name, value in self.decides)
        return same and all(isinstance(getattr(activation, name), int | float) for name in self.numbers)

    def values(self, activation: nn.Module) -> tuple[float, ...]:
        """Return the activation's arguments that are numbers."""
        return tuple(float(getattr(activation, name)) for name in self.numbers)
