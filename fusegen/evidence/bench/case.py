"""The case of a benchmark: what is measured, on which tensors."""

import math
from dataclasses import dataclass

FORWARD, BACKWARD, TRAINING = "forward", "backward", "training"


@dataclass(frozen=True, slots=True)
class Case:
    """A pass of a spec, in one dtype and shape on one device.

    Attributes:
        name: of the spec.
        what: ``forward``, ``backward``, or ``training``, which is one after the other.
        dtype: its name in torch.
        shape: of the first input, which the others follow.
        device: ``cpu`` or ``cuda``.
    """

    name: str
    what: str
    dtype: str
    shape: tuple[int, ...]
    device: str

    @property
    def numel(self) -> int:
        """Elements of the first input."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"{self.name} {self.what}, {self.dtype}, {shape}, {self.device}"
