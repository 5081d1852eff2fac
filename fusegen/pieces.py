"""Where CUDA's cubic polynomials of float32 results give a function, as templates/pieces.cu.j2 fits them.

Around each multiple of a step up to 64 there is one of |x|. Its first value is that there, the rest a
quadratic, by least squares in the zeros of a Chebyshev polynomial. This does it in double for one piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from fusegen.ir import Math, held

STEP, FAR = 2.0**-7, 64.0 - 2.0**-8
UNITS = 1.5  # in the last place, of what evaluation leaves of the 1.75 that a piece may err by
NODES = tuple(math.cos((k + 0.5) * math.pi / 4) for k in range(4))
ENDS = tuple(math.sin(k * math.pi / 16) for k in range(-8, 9))  # closer to these, where most cancels
DIGITS, SUBNORMAL = 24, -125  # of a float, and the least exponent of one that has them all


def fits(function: Callable[[float], float], x: float) -> bool:
    """Whether a piece gives a function at an x, to about two units in the last place."""
    size = abs(x)
    if not size < FAR:
        return False
    centre = STEP * round(size / STEP)
    low, high = max(centre - STEP / 2, 0.0), centre + STEP / 2
    half, middle = (high - low) / 2, (high + low) / 2 - centre
    side = math.copysign(1.0, x)
    first = function(side * centre)
    rises = [(function(side * (centre + at)) - first) / at for at in (middle + half * n for n in NODES)]
    mean = sum(rises) / 4
    slope = sum(rise * node for rise, node in zip(rises, NODES, strict=True)) / 2 / half
    bend = sum(rise * (node * node - 0.5) for rise, node in zip(rises, NODES, strict=True)) / half**2 * 2
    linear = mean - bend * half**2 / 2 - slope * middle + bend * middle**2
    if not math.isfinite(first + linear + slope + bend):
        return False
    c = [held(number, Math.FLOAT) for number in (first, linear, slope - 2 * bend * middle, bend)]

    def errs() -> Iterator[bool]:
        for end in ENDS:
            t = middle + half * end
            exact = function(side * (centre + t))
            _, exponent = math.frexp(exact)
            unit = math.ldexp(1.0, max(exponent, SUBNORMAL) - DIGITS)
            y = c[0] + t * (c[1] + t * (c[2] + t * c[3]))
            lost = held(y, Math.FLOAT) == 0 and math.copysign(1.0, exact) < 0  # the sign
            yield lost or not abs(y - exact) <= UNITS * unit

    return not any(errs())
