"""The class of the library for each activation of torch.nn, and of transformers and timm."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from numbers import Real
from types import ModuleType
from typing import Any

from torch import nn
from torch.nn.modules import activation

from fusegen.models.patch import elsewhere
from fusegen.models.patch.class_row import IN_PLACE, Row

PACKAGE = "fusegen.generated"


ROWS: dict[type[nn.Module], Row] = {
    nn.CELU: Row("celu", ("alpha", *IN_PLACE)),
    nn.ELU: Row("elu", ("alpha", *IN_PLACE)),
    nn.GELU: Row({"none": "gelu", "tanh": "gelu_tanh"}, option="approximate"),
    nn.GLU: Row("glu", ("dim",)),
    nn.Hardshrink: Row("hardshrink", ("lambd",)),
    nn.Hardsigmoid: Row("hardsigmoid", IN_PLACE),
    nn.Hardswish: Row("hardswish", IN_PLACE),
    nn.Hardtanh: Row("hardtanh", ("min_val", "max_val", *IN_PLACE)),
    nn.LeakyReLU: Row("leaky_relu", ("negative_slope", *IN_PLACE)),
    nn.LogSigmoid: Row("logsigmoid"),
    nn.Mish: Row("mish", IN_PLACE),
    nn.PReLU: Row("prelu", ("num_parameters",), state=("weight",)),
    nn.ReLU: Row("relu", IN_PLACE),
    nn.ReLU6: Row("relu6", IN_PLACE),
    nn.SELU: Row("selu", IN_PLACE),
    nn.SiLU: Row("silu", IN_PLACE),
    nn.Sigmoid: Row("sigmoid"),
    nn.Softplus: Row("softplus", ("beta", "threshold")),
    nn.Softshrink: Row("softshrink", ("lambd",)),
    nn.Softsign: Row("softsign"),
    nn.Tanh: Row("tanh"),
    nn.Tanhshrink: Row("tanhshrink"),
    nn.Threshold: Row("threshold", ("threshold", "value", *IN_PLACE)),
}
REASONS: dict[type[nn.Module], str] = {
    nn.MultiheadAttention: "it is no pointwise function",
    nn.RReLU: "its slopes are random in training",
    nn.Softmax: "it is no pointwise function",
    nn.Softmax2d: "it is no pointwise function",
    nn.Softmin: "it is no pointwise function",
    nn.LogSoftmax: "it is no pointwise function",
}
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def activations() -> tuple[type[nn.Module], ...]:
    """Return the activations of torch.nn, the base classes of others among them."""
    return tuple(getattr(activation, name) for name in activation.__all__)


def known(layer: nn.Module) -> bool:
    """Return True for an activation of torch.nn, transformers or timm."""
    named = elsewhere.row(layer) or elsewhere.reason(layer)
    return named is not None or isinstance(layer, activations())


def row_of(layer: nn.Module) -> Row | None:
    """Return the row of an activation; None where the library has no class for it."""
    return ROWS.get(type(layer)) or elsewhere.row(layer)


def reasons(layer: nn.Module) -> Iterator[str]:
    """Yield why an activation cannot be replaced, each a clause; none where it can."""
    row = row_of(layer)
    if row is None:
        of_torch = REASONS.get(type(layer), f"{type(layer).__name__} is no class of the library's table")
        yield elsewhere.reason(layer) or of_torch
        return
    if row.name(layer) is None:
        yield f"its {row.option} is {getattr(layer, row.option)!r}"
    if any(getattr(layer, hooks) for hooks in HOOKS):
        yield "it has hooks"
    if "forward" in vars(layer):
        yield "it has a forward of its own"
    if tuple(layer._parameters) != row.state or layer._buffers or layer._modules:
        yield "it has parameters, buffers or layers of its own"
    for name in row.arguments:
        if not isinstance(getattr(layer, name), Real):
            yield f"its {name} is no number"


def replacement(layer: nn.Module) -> nn.Module:
    """Return the generated module for an activation that can be replaced."""
    row = row_of(layer)
    assert row is not None
    name = row.name(layer)
    assert name is not None
    made: Callable[..., Any] = module(name).ModelNew
    new: nn.Module = made(**{each: getattr(layer, each) for each in row.arguments})
    if row.state:
        vars(new)["_parameters"] = layer._parameters
    return new.train(layer.training)


def module(name: str) -> ModuleType:
    """Import a module of the library, under the lock that Python has for each module."""
    found: ModuleType = pkgutil.resolve_name(f"{PACKAGE}.{name}")
    return found
