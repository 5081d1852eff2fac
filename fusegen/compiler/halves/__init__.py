"""The promise of 16-bit results: the correctly rounded value or its neighbour.

`misses` finds inputs at which a kernel misses it, `series` what is computed there instead. All of this is
of functions of one tensor, which have 65,536 results in 16 bits.
"""

from fusegen.compiler.halves.half_types import HALVES, Half
from fusegen.compiler.halves.misses import Halves
from fusegen.compiler.halves.several import Several
from fusegen.compiler.halves.side import Series, corrected
from fusegen.compiler.halves.tail_series import fitted

__all__ = ["HALVES", "Half", "Halves", "Series", "Several", "corrected", "fitted"]
