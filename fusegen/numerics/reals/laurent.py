"""Laurent series around 0: their sums, products and powers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mpmath import mp

LENGTH = 48  # coefficients of a series
MOST_POWER = 4 * LENGTH  # of x before the series
NOUGHT = mp.mpf(10) ** -50  # a coefficient that is 0 but for the rounding of constants to 60 digits


class NoSeries(Exception):
    """A term has no Laurent series around 0."""


@dataclass(frozen=True, slots=True)
class Series:
    """The series sum of c[k] x^(low + k)."""

    low: int  # the power of the first coefficient
    c: tuple[Any, ...]  # the coefficients

    def __post_init__(self) -> None:
        if abs(self.low) > MOST_POWER:
            raise NoSeries

    def trimmed(self) -> Series:
        """Return the series from its first coefficient on that is not 0."""
        least = NOUGHT * max(map(abs, self.c), default=0)
        start = next((k for k, c in enumerate(self.c) if abs(c) > least), None)
        if start is None:
            raise NoSeries
        return Series(self.low + start, self.c[start:])

    def added(self, other: Series) -> Series:
        """Return the sum of both, as far as both are known."""
        low = min(self.low, other.low)
        end = min(self.low + len(self.c), other.low + len(other.c), low + LENGTH)
        return Series(low, tuple(self.at(k) + other.at(k) for k in range(low, end)))

    def at(self, power: int) -> Any:
        """Return the coefficient of a power of x."""
        k = power - self.low
        return self.c[k] if 0 <= k < len(self.c) else mp.mpf(0)

    def times(self, other: Series) -> Series:
        """Return the product of both."""
        count = min(len(self.c), len(other.c))
        rows = (sum(self.c[j] * other.c[k - j] for j in range(k + 1)) for k in range(count))
        return Series(self.low + other.low, tuple(rows))

    def to_the(self, power: Fraction) -> Series:
        """Return a power of the series: y' s = p s' y."""
        base = self.trimmed()
        low = base.low * power
        if low.denominator > 1 or (power.denominator > 1 and base.c[0] < 0):
            raise NoSeries
        p = mp.mpf(power.numerator) / power.denominator
        y = [base.c[0] ** p]
        for n in range(1, len(base.c)):
            terms = ((p * k - (n - k)) * base.c[k] * y[n - k] for k in range(1, n + 1))
            y.append(sum(terms) / (n * base.c[0]))
        return Series(int(low), tuple(y))

    def from_0(self) -> Sequence[Any]:
        """Return the coefficients of x^0, x^1, ..."""
        if self.low < 0:
            raise NoSeries
        return [self.at(k) for k in range(self.low + len(self.c))][:LENGTH]
