"""The output shapes of layers, and the broadcasting of shapes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from fusegen.core.aten import ATEN
from fusegen.core.constructor import Layer, Sizes, StateTensor
from fusegen.core.folds import REDUCTIONS
from fusegen.core.layer_arguments import dimensions, each
from fusegen.core.poolings import POOLINGS, Window, window_of
from fusegen.core.scans import WRITTEN
from fusegen.core.spec import Spec
from fusegen.core.term import Name, SpecCall, Term, children

OF_ELEMENTS = ("softmax", "log_softmax", *WRITTEN)  # functions of rows that have a value of each element
POINTWISE = {name.partition("(")[0].rpartition(".")[2] for name in ATEN}  # specs of PyTorch's activations
KEEP = ("BatchNorm", "Dropout", "GroupNorm", "Identity", "InstanceNorm", "LayerNorm", "RMSNorm")


def after(layers: tuple[Layer, ...], shape: Sizes) -> Sizes | None:
    """Return the shape of what layers give of a tensor, one after the other; None where it is not known."""
    found: Sizes | None = shape
    for layer in layers:
        found = None if found is None else _after(layer, found)
    return found


def first_shape(spec: Spec) -> Sizes | None:
    """Return the shape of the first input as formulas read it; None where layers' is not known."""
    shape = result_shape(spec.front) if spec.front else spec.inputs[0].shape
    return None if shape is None else after(spec.producers, shape)


def result_shape(spec: Spec) -> Sizes | None:
    """Return the shape of a kernel's result; None where that of its first input is not known."""
    shape, pooled, over = first_shape(spec), window_of(spec), spec.over
    if shape is None:
        return None
    if pooled is not None:
        found = pooled.sizes(shape)
        return found if len(shape) > pooled.rank and min(found[-pooled.rank :]) > 0 else None
    if over is None:
        state = (each for each in spec.layers if isinstance(each, StateTensor) and each.is_read)
        return joined([shape, *(each.aligned(len(shape)) for each in state)])
    if (of_elements := varies(spec)) is not False:
        return shape if of_elements else None
    own = over.of(len(shape))
    kept = tuple(1 if d in own else n for d, n in enumerate(shape))
    return None if over.groups else kept if over.keeps else over.parted(shape)[0]


def joined(shapes: Sequence[Sizes]) -> Sizes | None:
    """Return the shape that some shapes broadcast to, if they do."""
    found = []
    for sizes in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        own = set(sizes) - {1}
        if len(own) > 1:
            return None
        found.append(own.pop() if own else 1)
    return tuple(reversed(found))


def varies(spec: Spec) -> bool | None:
    """Return True if a spec with rows has a value for each element; None where another spec decides."""
    known: dict[str, bool | None] = {each.name: True for each in spec.tensors}
    for line in spec.where:
        known[line.name] = _varies(line.term, known)
    running = spec.inputs[0].name
    for step in spec.chain:
        term = step.term or replace(step.call, args=(Name(running),)) if step.call else step.term
        known[running] = _varies(term, known) if term else known[running]
        known |= {step.label.name: known[running]} if step.label else {}
    return _varies(spec.formula, known) if spec.formula else known[running]


def _varies(term: Term, known: Mapping[str, bool | None]) -> bool | None:
    match term:
        case Name(name):
            return known.get(name, False)
        case SpecCall(spec) if spec in REDUCTIONS and spec not in OF_ELEMENTS:
            return False
    parts = [_varies(part, known) for part in children(term)]
    if isinstance(term, SpecCall) and term.spec not in (*OF_ELEMENTS, *POINTWISE) and any(parts):
        return None  # that spec may reduce the row
    return True if any(parts) else None if None in parts else False


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
