"""The value and the gradients of a formula over the real numbers, at points that are asked for again."""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

from fusegen.algebra.compose import expanded
from fusegen.algebra.derive import derive
from fusegen.core.interval import Point
from fusegen.core.method import Pass
from fusegen.core.term import Program
from fusegen.numerics.reals import Reals

Results = tuple[float, ...]


@dataclass(frozen=True)
class ExactResults:
    """The exact results of both passes."""

    declared: Program  # the formula

    def at(self, which: Pass, point: Point) -> Results:
        """Return the results of a pass, for an incoming gradient of 1.

        They are NaN where the function has no value, or no slope.
        """
        key = which, repr(point)  # which tells zeros of either sign apart
        if key not in self._known:
            self._known[key] = self._at(which, point)
        return self._known[key]

    def _at(self, which: Pass, point: Point) -> Results:
        value = self._value(point)
        if which is Pass.FORWARD:
            return tuple(value)
        names, slopes = self._slopes
        incoming, *read = names
        output = dict.fromkeys(set(read) - {*self.declared.inputs}, value[0])
        found = slopes({**point, **output, incoming: 1.0})
        return tuple(math.nan if math.isnan(value[0]) else slope for slope in found)

    @cached_property
    def _known(self) -> dict[tuple[Pass, str], Results]:
        return {}

    @cached_property
    def _value(self) -> Reals:
        return Reals(expanded(self.declared))

    @cached_property
    def _slopes(self) -> tuple[tuple[str, ...], Reals]:
        gradient = derive(expanded(self.declared))
        return gradient.inputs, Reals(gradient)


@lru_cache(maxsize=64)
def exact_results(declared: Program) -> ExactResults:
    """Return the exact results of a formula, with those known that another spec of it has asked for."""
    return ExactResults(declared)
