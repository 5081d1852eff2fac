"""The case of a benchmark: what is measured, on which tensors."""

import math
from dataclasses import dataclass

FORWARD, BACKWARD, TRAINING = "forward", "backward", "training"


@dataclass(frozen=True, slots=True)
class Case:
    """A pass of a spec, in one dtype and shape on one device."""

    name: str  # of the spec
    what: str  # ``forward``, ``backward``, or ``training``, which is one after the other
    dtype: str  # its name in torch
    shape: tuple[int, ...]  # of the first input, which the others follow
    device: str  # ``cpu`` or ``cuda``

    @property
    def numel(self) -> int:
        """Elements of the first input."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"{self.name} {self.what}, {self.dtype}, {shape}, {self.device}"
