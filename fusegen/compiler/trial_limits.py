"""The limits of a formula's value and gradients as one input tends to an infinity, from exact values."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fusegen.algebra.limits.clamps import tends
from fusegen.compiler.exact_results import ExactResults, exact_results
from fusegen.core.interval import Point
from fusegen.core.method import Pass
from fusegen.core.term import Program, applied

NEAR = tuple(2.0**k for k in (3, 4, 5, 6, 7))  # where what has an infinite limit grows already
WAY = tuple(2.0**k for k in (28, 36, 44, 60, 80, 100, 120))  # from there to an infinity
BETWEEN = tuple(2.0**k + 0.37 for k in (12, 20, 28, 34, 40))  # whole numbers, where turns are whole, too
FAR = tuple(2.0**k for k in (64, 256, 1000))  # where a logarithm doubles, too
CONVERGED, LAST, GROWS = 2.0**-50, 3, 1.2  # how near the last values are, and by which factor others grow


@dataclass(frozen=True)
class TrialLimits:
    """The limits of a formula."""

    declared: Program  # the formula

    def at(self, output: int, name: str, end: float, others: Point) -> float | None:
        """Return the limit of output 0, the value, or of gradient k at an end of an input, if known."""
        key = output, name, end, repr(others)  # which tells zeros of either sign apart
        if key not in self._known:
            self._known[key] = self._found(output, name, end, others)
        return self._known[key]

    @cached_property
    def _known(self) -> dict[tuple[int, str, float, str], float | None]:
        """Those that were asked for already: every candidate of a mend asks for the same."""
        return {}

    def _found(self, output: int, name: str, end: float, others: Point) -> float | None:
        def along(sizes: Sequence[float]) -> list[float]:
            points = [{**others, name: math.copysign(size, end)} for size in sizes]
            which = Pass.BACKWARD if output else Pass.FORWARD
            return [self._exact.at(which, at)[max(output - 1, 0)] for at in points]

        limit = self._tendency(along(NEAR), along(WAY))
        if not self._steady and limit is not None and limit != self._tendency(along(NEAR), along(BETWEEN)):
            return None
        if limit is None and self._steady and math.isfinite((far := along(FAR))[0]):
            return tends(far)
        return limit

    def _tendency(self, near: Sequence[float], values: Sequence[float]) -> float | None:
        last = values[-LAST:]
        end = last[-1]
        if all(math.isfinite(x) and math.isclose(x, end, rel_tol=CONVERGED) for x in last):
            return end
        if all(math.isinf(x) and x == end for x in last):
            grows = all(
                math.isfinite(b) and GROWS * abs(a) <= abs(b) and b * end > 0
                for a, b in itertools.pairwise(near)
            )
            return end if grows else None
        return tends(values) if self._steady and all(map(math.isfinite, values)) else None

    @cached_property
    def _steady(self) -> bool:
        """Return True if no sine or cosine may leave a growing function without a limit."""
        return not applied(self.declared.terms) & {"sin", "cos"}

    @cached_property
    def _exact(self) -> ExactResults:
        return exact_results(self.declared)
