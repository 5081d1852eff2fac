"""The polynomial of e^(x²) erfc(x) above 1.

Source: Shepherd and Laframboise 1981, Chebyshev Approximation of (1 + 2x) exp(x²) erfc(x) in 0 <= x < ∞,
Mathematics of Computation 36.
"""

from fractions import Fraction
from functools import lru_cache
from typing import Any

from mpmath import mp

ABOVE, BESIDE = 1, 3  # it is one in 1 - 8 / (x + 3), which goes from -1 at 1 to 1
TERMS, DIGITS = 28, 40  # it leaves out 2^-71, and its slope 2^-63


@lru_cache(maxsize=1)
def polynomial() -> list[Fraction]:
    """Return the coefficients that interpolate (x + 1/2) e^(x²) erfc(x) at Chebyshev's nodes."""
    with mp.workdps(DIGITS):
        return [Fraction(mp.nstr(c, DIGITS)) for c in reversed(mp.chebyfit(_scaled, [-1, 1], TERMS))]


def _scaled(turned: Any) -> Any:
    if turned == 1:
        return 1 / mp.sqrt(mp.pi)
    x = 2 * (ABOVE + BESIDE) / (1 - turned) - BESIDE
    return (x + mp.mpf(1) / 2) * mp.exp(x * x) * mp.erfc(x)
