"""Declared shapes that broadcast in two ways, since two dimensions happen to be of one size."""

from collections.abc import Iterator, Sequence

from fusegen.core.spec import Input, Spec
from fusegen.core.tensor_shapes import joined

TWICE = (
    "{spec}: {name} of shape {shape} is aligned with the last dimensions of {other}; as sizes are equal, "
    "unsqueeze({name}, {dim}) in its place would fit, too"
)
Shape = tuple[int, ...]


def two_fits(spec: Spec) -> Iterator[str]:
    """A sentence for each input that fits the others with a dimension of size 1 in another place, too.

    With layers in front, the shape of the first operand is unknown.
    """
    if spec.layers or spec.front:
        return
    for of in (each for each in spec.inputs if each.index is None):
        others = [each.shape for each in spec.inputs if each is not of]
        dim = _other_place(of, others)
        if dim is not None:
            largest = max(others, key=len)
            yield TWICE.format(
                spec=spec.name, name=of.name, shape=list(of.shape), other=list(largest), dim=dim
            )


def _other_place(of: Input, others: Sequence[Shape]) -> int | None:
    """Where a dimension of size 1 makes another tensor of the declared shape that fits, if anywhere."""
    rank = max(map(len, others), default=0)
    whole = joined([of.shape, *others])
    if of.unsqueeze is not None or len(of.shape) >= rank or whole is None:
        return None
    for dim in range(len(of.shape), 0, -1):  # the last dimension first; 0 adds what broadcasting adds
        shape = (*of.shape[:dim], 1, *of.shape[dim:])
        if _aligned(shape) != _aligned(of.shape) and joined([shape, *others]) == whole:
            return dim
    return None


def _aligned(shape: Shape) -> Shape:
    """Return the sizes from the last, without those that broadcasting adds."""
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape
