"""The bound on the estimated error of a kernel by curves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusegen import budget
from fusegen.excess import excess, tolerated
from fusegen.expected import Formula
from fusegen.facts import Curves
from fusegen.ir import Device, Kernel
from fusegen.roundoff import Errors, errors
from fusegen.roundoff.curves import by_curves
from fusegen.values import Column


@dataclass(frozen=True)
class Bound:
    """The error that a kernel by curves may have: the contract's, unless the formula exceeds it in float.

    Attributes:
        formula: as declared.
        single: the kernel by the formula, in float.
    """

    formula: Formula
    single: Kernel

    def allowed(self, formula: Formula) -> Column:
        """The contract's where the formula is within it in float; else its own, or eager's if smaller."""
        own = errors(self.single, formula.sample(self.single), formula.params).columns
        most = budget.FLOAT_ENOUGH[Device.CUDA]
        return np.where(
            own <= most, most, np.maximum(most, np.minimum(own, tolerated(self.single)(formula)))
        )

    def holds(self, curves: Curves) -> bool:
        """True if the estimated error by curves is within the bound on inputs that the pieces cover."""

        def estimated(formula: Formula) -> Errors:
            found, missing = by_curves(curves, formula.sample(curves.kernel), formula.params)
            return found.but(missing)

        return excess(self.formula, curves.kernel, estimated, self.allowed) is None
