"""The 16-bit types: their numbers, the order of these, and a sample that has some of every binade."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fusegen.numerics.ieee import Column

Places = npt.NDArray[np.int64]
# significands that are tried in every binade, and next to 1, where functions bend
FEW, MANY = (1.0, 1.1875, 1.4453125), tuple(1 + k / 8 + 1 / 64 for k in range(8))
NEAR = range(-8, 8)  # the exponents of binades next to 1
SHORT = tuple(k / 4 for k in range(1, 33))  # numbers of few bits, where a result may be 0 exactly


@dataclass(frozen=True, slots=True)
class Half:
    """A 16-bit type."""

    digits: int  # of a significand
    least: int  # the exponent of the least positive number
    largest: float  # the largest number

    def unit(self, numbers: Column) -> Column:
        """Return the unit in the last place at some numbers."""
        sizes = np.minimum(np.abs(numbers), self.largest)
        _, exponents = np.frexp(sizes)
        return np.ldexp(
            1.0, np.where(sizes > 0, np.maximum(exponents - self.digits, self.least), self.least)
        )

    def nearest(self, number: float) -> float:
        """Return the multiple of the unit in the last place that is nearest to a finite number."""
        size = min(abs(number), self.largest)
        exponent = max(math.frexp(size)[1] - self.digits, self.least) if size else self.least
        return math.copysign(math.ldexp(round(math.ldexp(number, -exponent)), exponent), number)

    def places(self, numbers: Column) -> Places:
        """Return the places of rounded numbers among the type's, in their order; none of a NaN is meant."""
        sizes, unit = np.abs(numbers), self.unit(numbers)
        steps = np.rint(np.minimum(sizes, 2 * self.largest) / unit)
        _, exponents = np.frexp(unit)
        found = (exponents - 1 - self.least) * 2.0 ** (self.digits - 1) + steps
        return np.copysign(np.minimum(found, self.infinity), numbers).astype(np.int64)

    @property
    def infinity(self) -> float:
        """The place behind the largest number."""
        exponent = math.frexp(self.largest)[1] - self.digits - self.least
        return float(exponent * 2 ** (self.digits - 1) + 2**self.digits)

    def sample(self) -> Column:
        """Return some numbers of every binade and both signs, in their order, but for zeros."""
        last = math.frexp(self.largest)[1]
        sizes = [
            float(np.rint(math.ldexp(part, exponent - self.least))) * 2.0**self.least
            if exponent < self.least + self.digits
            else math.ldexp(math.floor(math.ldexp(part, self.digits - 1)), exponent - self.digits + 1)
            for exponent in range(self.least, last)
            for part in (MANY if exponent in NEAR else FEW)
        ]
        found = np.unique([*sizes, *SHORT, self.largest])
        return np.concatenate([-found[::-1], found])


HALVES: Mapping[str, Half] = {
    "float16": Half(11, -24, 65504.0),
    "bfloat16": Half(8, -133, float.fromhex("0x1.fep127")),
}
