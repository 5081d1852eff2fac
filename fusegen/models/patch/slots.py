"""The value of a norm that the layer in front of it computed with its sum, until the norm is called.

It belongs to the norm and to one thread, and is dropped with the sum, or for the next value. The norm takes
it for the very tensor that it was computed of, unless that or a weight was written to since.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from torch import Tensor

SLOT = "_fusegen_slot"  # the attribute of a norm; attributes of this form decide no function
# Values in a row that a norm did not take. Then another module calls it, or layers were pruned, and the
# sum alone is faster. Layers that are dropped at random do not come to so many.
MISSES = 16


@dataclass(frozen=True)
class Value:
    """A value of a norm.

    Attributes:
        total: the sum that it is computed of.
        normed: the value.
        weights: of the norm, at the time.
        state: of the sum and the weights.
    """

    total: weakref.ref[Tensor]
    normed: Tensor
    weights: Sequence[Tensor]
    state: Sequence[Any]

    def is_of(self, x: Tensor, weights: Sequence[Tensor]) -> bool:
        """Tell if nothing was written to the sum and the weights since, and these are the same ones."""
        is_same = all(one is other for one, other in zip(self.weights, weights, strict=True))
        return is_same and self.state == _state(x, weights)


class Slot:
    """Values for a norm, at most one in each thread. Copies, pickled ones too, are empty."""

    def __init__(self) -> None:
        """Begin with none."""
        self._values = dict[int, Value]()
        self._missed = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Slot, ()

    def is_wanted(self, weights: Sequence[Tensor]) -> bool:
        """Tell if the norm takes values, and its weights can be read and count the writes to them."""
        if self._missed >= MISSES or any(each.is_inference() for each in weights):
            return False
        return all(each.untyped_storage().nbytes() for each in weights)  # FSDP frees those of other layers

    def put(self, total: Tensor, normed: Tensor, weights: Sequence[Tensor]) -> None:
        """Keep the value of a sum for the norm's next call in this thread."""
        thread = get_ident()

        def forget(_: Any) -> None:
            self._values.pop(thread, None)

        self._missed += 1
        self._values[thread] = Value(weakref.ref(total, forget), normed, weights, _state(total, weights))

    def pop(self, x: Any) -> Value | None:
        """Return the value of a tensor, if this thread has it; what it has instead is dropped."""
        value = self._values.pop(get_ident(), None) if self._values else None
        return value if value is not None and value.total() is x else None

    def take(self, value: Value, x: Tensor, weights: Sequence[Tensor]) -> Tensor | None:
        """Return the norm of a tensor, unless that or a weight is another one than it was."""
        if not value.is_of(x, weights):
            return None
        self._missed = 0
        return value.normed


def _state(x: Tensor, weights: Sequence[Tensor]) -> list[Any]:
    """Return the current stream, and of each tensor what changes with a write or with another layout."""
    # Memory that was made on another stream may be free again before this one has read it.
    stream = torch._C._cuda_getCurrentRawStream(x.device.index) if x.is_cuda else 0
    every = (x, *weights)
    return [stream, *((each._version, each.data_ptr(), each.shape, each.stride()) for each in every)]
