"""Scans along the rows of a tensor: folds of which each prefix is a result.

In a program a scan is a call, by its name here, that `compose` leaves as it is: of a value of each element
it makes another one of each.
"""

from dataclasses import dataclass
from typing import TypeGuard

from fusegen.core.term import SpecCall, Term

CUMSUM, CUMPROD = "cumsum", "cumprod"
FACTORS = "factors"  # a product that stays 0 behind a 0, as gradients do
SLOPE = "slope"  # the gradient of a product: of what comes in, an element, and the product of those before
# by kind, the C++ type that joins values
KINDS = {CUMSUM: "RunningSum", CUMPROD: "RunningProduct", FACTORS: "RunningFactors", SLOPE: "RunningSlope"}
FLAGS = ("reverse", "exclusive")


@dataclass(frozen=True, slots=True)
class Scan:
    """A fold of which each prefix is a result.

    Attributes:
        kind: of `KINDS`; PyTorch's name, where it is a function of formulas.
        reverse: whether it begins at the last element.
        exclusive: whether a result is without its own element.
    """

    kind: str
    reverse: bool = False
    exclusive: bool = False

    @property
    def name(self) -> str:
        """The name by which a program calls it: ``cumsum_reverse``."""
        flags = zip(FLAGS, (self.reverse, self.exclusive), strict=True)
        return "_".join([self.kind, *(flag for flag, is_set in flags if is_set)])

    @property
    def cpp(self) -> str:
        """The scan as a type in C++; a slope reads what is before an element in any case."""
        reverse, exclusive = (str(flag).lower() for flag in (self.reverse, self.exclusive))
        join = KINDS[self.kind]
        if self.kind == SLOPE:
            join, exclusive = f"{join}<{exclusive}>", "true"
        return f"Scan<{join}, {reverse}, {exclusive}>"


SCANS = {
    (scan := Scan(kind, reverse, exclusive)).name: scan
    for kind in KINDS
    for reverse in (False, True)
    for exclusive in (False, True)
}
WRITTEN = [name for name, scan in SCANS.items() if scan.kind in (CUMSUM, CUMPROD)]  # in formulas


def is_scan(term: Term) -> TypeGuard[SpecCall]:
    """Return True if a term is a scan along a row."""
    return isinstance(term, SpecCall) and term.spec in SCANS
