"""The output shapes of layers, and the broadcasting of shapes."""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from fusegen.core.constructor import Layer, Sizes
from fusegen.core.layer_arguments import dimensions, each
from fusegen.core.poolings import POOLINGS, Window
from fusegen.core.spec import Spec

KEEP = ("BatchNorm", "Dropout", "GroupNorm", "Identity", "InstanceNorm", "LayerNorm", "RMSNorm")


def after(layers: tuple[Layer, ...], shape: Sizes) -> Sizes | None:
    """Return the shape of what layers give of a tensor, one after the other; None where it is not known."""
    found: Sizes | None = shape
    for layer in layers:
        found = None if found is None else _after(layer, found)
    return found


def first_shape(spec: Spec) -> Sizes | None:
    """Return the shape of the first input as formulas read it; None where layers' is not known."""
    return after(spec.producers, spec.inputs[0].shape)


def broadcast(one: Sizes, other: Sizes) -> bool:
    """Return True if two shapes broadcast with each other."""
    pairs = zip_longest(reversed(one), reversed(other), fillvalue=1)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def _after(layer: Layer, shape: Sizes) -> Sizes | None:
    given: dict[str, Any] = dict(layer.given)
    if layer.kind.startswith(KEEP):
        return shape
    if layer.kind == "Linear" and shape[-1:] == (given.get("in_features"),):
        return (*shape[:-1], given["out_features"]) if "out_features" in given else None
    if layer.kind.startswith("Conv"):
        return _convolved(layer.kind, given, shape)
    if layer.kind.startswith(("AvgPool", "MaxPool")) and "kernel_size" in given:
        return _pooled(layer.kind, given, shape)
    return None


def _pooled(kind: str, given: Mapping[str, Any], shape: Sizes) -> Sizes | None:
    """Return the output shape of a pooling of a batch."""
    n, kernel = dimensions(kind), given["kernel_size"]
    usual = {"kernel_size": kernel, "stride": kernel, "padding": 0, "dilation": 1}
    read = {**usual, **{name: value for name, value in given.items() if value is not None}}
    sizes, stride, padding, dilation = ((each(read[name]) * n)[:n] for name in usual)
    pooling = POOLINGS[f"{kind[:3].lower()}_pool{n}d"]
    window = Window(pooling, sizes, stride, padding, dilation, ceil=bool(read.get("ceil_mode")))
    found = window.sizes(shape)
    return found if len(shape) > n and min(found[-n:]) > 0 else None


def _convolved(kind: str, given: Mapping[str, Any], shape: Sizes) -> Sizes | None:
    """Return the output shape of a convolution of a batch."""
    n = dimensions(kind)
    fits = len(shape) == n + 2 and shape[1] == given.get("in_channels")
    if not fits or not {"out_channels", "kernel_size"} <= given.keys():
        return None
    usual = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
    words = {"valid": 0, "same": 0}
    read = {name: given.get(name, default) for name, default in usual.items()}
    if read["padding"] == "same":
        return (shape[0], given["out_channels"], *shape[2:])
    read["padding"] = words.get(read["padding"], read["padding"])
    read["kernel_size"] = given["kernel_size"]
    size = _transposed if kind.startswith("ConvTranspose") else _direct
    columns = {name: (each(value) * n)[:n] for name, value in read.items()}
    found = [size(shape[2 + k], {name: column[k] for name, column in columns.items()}) for k in range(n)]
    return (shape[0], given["out_channels"], *found) if min(found) > 0 else None


def _direct(size: int, at: Mapping[str, int]) -> int:
    extent = at["dilation"] * (at["kernel_size"] - 1) + 1
    return (size + 2 * at["padding"] - extent) // at["stride"] + 1


def _transposed(size: int, at: Mapping[str, int]) -> int:
    extent = at["dilation"] * (at["kernel_size"] - 1) + 1
    return (size - 1) * at["stride"] - 2 * at["padding"] + extent + at["output_padding"]
