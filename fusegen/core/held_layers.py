"""Layers of torch.nn that formulas read, as ``norm.weight``: the kernel computes what they do."""

from collections.abc import Iterator

from fusegen.core.constructor import Layer, Sizes, StateTensor
from fusegen.core.layer_arguments import each, is_real, is_whole
from fusegen.core.spec import Spec

TENSORS, SCALAR = ("weight", "bias"), "eps"
# by how the names of layers begin: the argument that is the shape of their tensors
SHAPES = {
    "BatchNorm": "num_features",
    "GroupNorm": "num_channels",
    "InstanceNorm": "num_features",
    "LayerNorm": "normalized_shape",
    "RMSNorm": "normalized_shape",
}
AFFINE = ("affine", "elementwise_affine")
EPS = 1e-5  # of all but RMSNorm, which has none unless it is given


def is_held(kind: str) -> bool:
    """Return True if formulas may read a layer of a class."""
    return kind.startswith(tuple(SHAPES))


def read_as(attribute: str, part: str) -> str:
    """Return the name by which kernels have a part of a layer."""
    return f"{attribute}_{part}"


def parts(attribute: str) -> Iterator[str]:
    """Yield what formulas may write of a layer."""
    yield from (f"{attribute}.{part}" for part in (*TENSORS, SCALAR))


def paths(spec: Spec) -> dict[str, str]:
    """Return the places of tensors and scalars that a model has in layers, as norm.weight, by name."""
    held = {t.attribute: t.path for t in spec.layers if isinstance(t, StateTensor) and t.path}
    return held | {scalar.name: scalar.path for scalar in spec.params if scalar.path}


def tensors(layer: Layer) -> dict[str, Sizes]:
    """Return the shapes of a layer's tensors, at the constructor's defaults."""
    given = dict(layer.given)
    argument = next(shape for kind, shape in SHAPES.items() if layer.kind.startswith(kind))
    sizes = tuple(size for size in each(given.get(argument)) if is_whole(size, 0))
    is_affine = all(given.get(name, not layer.kind.startswith("InstanceNorm")) for name in AFFINE)
    biased = not layer.kind.startswith("RMSNorm") and given.get("bias", True)
    return {name: sizes for name in TENSORS if is_affine and (biased or name == "weight")}


def eps(layer: Layer) -> float | None:
    """Return the number that a layer adds to a variance; None where it has none of its own."""
    found = dict(layer.given).get(SCALAR, None if layer.kind.startswith("RMSNorm") else EPS)
    return float(found) if isinstance(found, int | float) and is_real(found) else None
