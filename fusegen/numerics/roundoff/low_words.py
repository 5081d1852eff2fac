"""The low words of double-word sums, whose values in double alone would lose what cancels.

(1.3 + 2^-60) - 1.3 is 2^-60 in double-word arithmetic, and 0 in double. An estimate that evaluates the sum
in double would blame the kernel for that.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from fusegen.numerics.ieee import Column


class LowWords:
    """The low words of some values, each of which is a column."""

    # the operations that have them, by what they do to the second argument
    sums: Mapping[str, Callable[[Column], Column]] = MappingProxyType(
        {"add": np.positive, "sub": np.negative}
    )

    def __init__(self, high: Sequence[Column]) -> None:
        """Take the high words, by place; the list grows."""
        self.high = high
        self.low: dict[int, Column] = {}

    def sum(self, place: int, op: str, args: Sequence[int]) -> Column:
        """Return the high word of a sum of two values, and note the low one.

        Source: Knuth 1997, The Art of Computer Programming 2, 4.2.2, theorem B.
        """
        (a, a_low), (b, b_low) = ((self.high[arg], self.low.get(arg)) for arg in args)
        sign = self.sums[op]
        b = sign(b)
        with np.errstate(all="ignore"):
            whole = a + b
            rest = whole - a
            lost = (a - (whole - rest)) + (b - rest)
            lost = lost + (0.0 if a_low is None else a_low) + (0.0 if b_low is None else sign(b_low))
            lost = np.where(np.isfinite(whole) & np.isfinite(lost), lost, 0.0)
            found: Column = whole + lost
            self.low[place] = lost - (found - whole)
        return found
