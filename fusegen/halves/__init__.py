"""The promise of 16-bit results: the correctly rounded value or its neighbour.

`misses` finds inputs at which a kernel misses it, `series` what is computed there instead. All of this is
of functions of one tensor, which have 65,536 results in 16 bits.
"""

from fusegen.halves.misses import Halves
from fusegen.halves.numbers import HALVES, Half
from fusegen.halves.series import fitted
from fusegen.halves.several import Several
from fusegen.halves.side import Series, corrected

__all__ = ["HALVES", "Half", "Halves", "Series", "Several", "corrected", "fitted"]
