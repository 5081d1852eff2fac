"""Sizes of a capture that stay symbols where a condition gives them a value."""

from typing import Any

from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.value_ranges import ValueRanges


class Unfixed(ShapeEnv):
    """The sizes of a capture, of which none becomes the number that a condition says it is.

    A size of 8 that is added to a parameter of 8 is a symbol still, as another call may have one of 1.
    """

    def _set_replacement(self, a: Any, tgt: Any, msg: str) -> None:
        if tgt.is_number:
            self._update_var_to_range(a, ValueRanges(tgt, tgt))
        else:
            super()._set_replacement(a, tgt, msg)
