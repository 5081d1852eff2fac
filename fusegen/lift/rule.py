"""The rule that decides which regions of a graph have a kernel, and why others have none."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import fx

from fusegen.lift.regions.gradient import gradient_traffic
from fusegen.lift.regions.partition import Region
from fusegen.lift.regions.spec import RegionSpec, Source, refused, written
from fusegen.lift.regions.worth import Traffic, size, traffic
from fusegen.method import Pass

ALONE = "alone it is as fast in PyTorch as in a kernel"
SMALL = "it moves so few bytes that the call of a kernel takes longer"
GRADIENT = "in training a kernel and that of its gradient save too few bytes"
FORWARD = (Pass.FORWARD,)


@dataclass(frozen=True)
class Rule:
    """The savings from which on a region has a kernel of its own.

    Attributes:
        source: where its graph is from.
        least_passes: of eager over memory, from which on a region has a kernel: 1 for every region.
        passes: that run; in training those of the gradient, too.
    """

    source: Source
    least_passes: int = 2
    passes: tuple[Pass, ...] = FORWARD

    def in_each_mode(self, graphs: tuple[fx.Graph, ...]) -> tuple[Rule, ...]:
        """The rules for the graphs of a model: one for both modes, or those of training and evaluation."""
        return (self,) if len(graphs) == 1 else (replace(self, passes=tuple(Pass)), self)

    def spec(self, region: Region) -> tuple[RegionSpec | None, str]:
        """The spec of a region that has a kernel, or why it has none."""
        moved = traffic(region)
        if not self._accepts(moved):
            return None, SMALL if moved.saved > 0 else ALONE
        found = written(region, self.source)
        why = refused(found) or ("" if self._accepts_gradient(found, moved) else GRADIENT)
        return (None, why) if why else (found, "")

    def adds_bias(self, region: Region, convolution: fx.Node) -> bool:
        """True if a region has a kernel that adds the bias of a convolution, for which eager has passes."""
        whole = size(convolution)
        moved = traffic(region, 2 * whole)
        if not self._accepts(moved):
            return False
        found, with_sum = written(region, self.source), replace(moved, eager=moved.eager + whole)
        return not refused(found) and self._accepts_gradient(found, with_sum)

    def _accepts(self, moved: Traffic) -> bool:
        return self.least_passes < 2 or moved.is_worth_a_kernel

    def _accepts_gradient(self, of: RegionSpec, forward: Traffic) -> bool:
        if self.least_passes < 2 or Pass.BACKWARD not in self.passes:
            return True
        return (forward + gradient_traffic(of)).is_worth_a_kernel
