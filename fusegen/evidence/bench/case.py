"""The case of a benchmark: what is measured, on which tensors, and the shapes of these."""

import math
from dataclasses import dataclass
from itertools import zip_longest

from fusegen.core.spec import Input, Spec
from fusegen.core.tensor_shapes import after

Shape = tuple[int, ...]
FORWARD, BACKWARD, TRAINING = "forward", "backward", "training"


@dataclass(frozen=True, slots=True)
class Case:
    """A pass of a spec, in one dtype and shape on one device."""

    name: str  # of the spec
    what: str  # ``forward``, ``backward``, or ``training``, which is one after the other
    dtype: str  # its name in torch
    shape: Shape  # of the first input, which the others follow
    device: str  # ``cpu`` or ``cuda``

    @property
    def numel(self) -> int:
        """Elements of the first input."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.name} {self.what}, {self.dtype}, {written(self.shape)}, {self.device}"


def written(shape: Shape) -> str:
    """Return a shape as tables show it: ``4096x393216``."""
    return "x".join(map(str, shape))


def input_shapes(
    spec: Spec,  # that declares shapes
    first: Shape,  # the shape of the first input, which layers may change before it meets the others
) -> tuple[Shape, ...]:
    """Return the shapes of a spec's inputs as formulas read them, with the views that they have there.

    They are as small beside the first one as the spec declares them: where it declares x: [64, 128] and
    b: [128], and x has 32 x 1024 elements, b has 1024.
    """
    leading, *others = spec.inputs
    before, now = after(spec.producers, leading.shape), after(spec.producers, first)
    if before is None or now is None:  # then only the shape that is declared fits
        before, now = (), ()
    rest = (
        spec.over.parted(now or first)[0]
        if spec.over and each.index is not None
        else _scaled(_viewed(each, each.shape), _viewed(leading, before), _viewed(leading, now))
        for each in others
    )
    return (_viewed(leading, first), *rest)


def _viewed(tensor: Input, shape: Shape) -> Shape:
    """Return the shape that formulas read of a tensor of some shape."""
    if tensor.unsqueeze is None:
        return shape
    place = tensor.unsqueeze % (len(shape) + 1)
    return (*shape[:place], 1, *shape[place:])


def _scaled(shape: Shape, before: Shape, now: Shape) -> Shape:
    """Return a shape whose sizes follow those of another one, from the last dimension on."""
    if before == now:
        return shape
    if shape == before:
        return now
    sizes = zip_longest(reversed(shape), reversed(before), reversed(now))
    scaled = (new if size == old else size for size, old, new in sizes if size is not None)
    return tuple(size for size in scaled if size is not None)[::-1]
