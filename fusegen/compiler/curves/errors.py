"""The bound on the estimated error of a kernel by curves."""

from dataclasses import dataclass

from fusegen.compiler.estimates import Formula
from fusegen.compiler.local_excess import excess, tolerated
from fusegen.core.facts import Curves
from fusegen.core.ir import Kernel
from fusegen.numerics.roundoff import Errors
from fusegen.numerics.roundoff.curves import by_curves


@dataclass(frozen=True)
class Bound:
    """The error that a kernel by curves may have: the contract's."""

    formula: Formula  # as declared
    single: Kernel  # the kernel by the formula, in float

    def holds(self, curves: Curves) -> bool:
        """True if the estimated error by curves is within the bound on inputs that the pieces cover."""

        def estimated(formula: Formula) -> Errors:
            found, missing = by_curves(curves, formula.sample(curves.kernel), formula.params)
            return found.but(missing)

        return excess(self.formula, self.single, estimated, tolerated(self.single)) is None
