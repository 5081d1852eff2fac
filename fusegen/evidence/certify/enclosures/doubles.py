"""From balls to doubles, and the limits of sequences of these."""

import math
from typing import NamedTuple

from flint import arb

from fusegen.evidence.certify.enclosures.power_series import HALF_LEAST, OVERFLOWING

ACCURATE = 105  # bits of a result that is kept: 100 for the reader, the rest for the rounding of `lo`


class Real(NamedTuple):
    """A real number as the unevaluated sum of two doubles, with a relative error below 2**-100."""

    # the double nearest to it, signed where it rounds to zero. NaN where the function is undefined (the
    # logarithm of a negative number, 0 / 0, a pole) or where 4096 bits do not enclose it.
    hi: float
    # the double nearest to the rest, as far down as doubles go; 0 where `hi` is the number, or is infinite,
    # NaN or zero
    lo: float


# --- from balls to doubles ------------------------------------------------------------------------------

_WHOLE = 2.0**-960  # from here on, `lo` has all its bits


def as_real(ball: arb) -> Real | None:
    """Return the number in a ball, or nothing where the ball is too wide for two doubles."""
    if ball.rel_accuracy_bits() < ACCURATE:
        sign = (ball > 0) - (ball < 0)
        if sign and abs(ball) < HALF_LEAST:
            return Real(math.copysign(0.0, sign), 0.0)
        if sign and abs(ball) > OVERFLOWING:
            return Real(math.copysign(math.inf, sign), 0.0)
        return None
    hi = float(ball)
    lo = float(ball - hi) + 0.0 if 0 < abs(hi) < math.inf else 0.0
    nearest = hi + lo * 1.0000001 == hi if _WHOLE <= abs(hi) < math.inf else ball.is_exact()
    if nearest or float(ball.lower()) == float(ball.upper()):
        return Real(hi, lo)
    return None  # the middle of two doubles lies in the ball


def said_of_a_wide_ball(ball: arb) -> Real:
    """Return the message for a ball that no precision makes narrow."""
    if abs(ball) < HALF_LEAST:
        return Real(0.0, 0.0)
    near = ball.rel_accuracy_bits() >= ACCURATE  # between two doubles, to the last bit
    return Real(hi := float(ball), float(ball - hi)) if near else Real(math.nan, 0.0)


# --- limits ---------------------------------------------------------------------------------------------

FAR = (2.0**64, 2.0**256, 2.0**1000)
BETWEEN = tuple(2.0**k + 0.37 for k in (12, 24, 40))  # whole numbers


def is_near(a: float, b: float) -> bool:
    """Return True if two doubles agree to 60 bits."""
    return a == b or abs(a - b) <= 2.0**-60 * abs(b)


def tendency(a: Real, b: Real, c: Real) -> Real:
    """Return the limit of a sequence that begins, far out, with these three."""
    if b == c or abs((b.hi - c.hi) + (b.lo - c.lo)) <= 2.0**-60 * abs(c.hi):
        return Real(c.hi, c.lo if abs(c.lo) >= 2.0**-100 * abs(c.hi) else 0.0)
    if abs(c.hi) <= abs(b.hi) / 2 <= abs(a.hi) / 4:
        return Real(0.0, 0.0)
    if c.hi / 2 >= b.hi >= 2 * a.hi > 0 or c.hi / 2 <= b.hi <= 2 * a.hi < 0:
        return Real(math.copysign(math.inf, c.hi), 0.0)
    return Real(math.nan, 0.0)
