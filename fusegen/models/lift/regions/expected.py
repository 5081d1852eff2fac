"""The expected time of a region on a chip, by the cost model and the memory traffic."""

import math
from dataclasses import dataclass
from pathlib import Path

from fusegen.codegen.emit.kernel_text import element_costs
from fusegen.core.chips import Chip
from fusegen.core.method import Pass
from fusegen.models.lift.regions.region_spec import RegionSpec
from fusegen.models.lift.regions.worth import Traffic
from fusegen.models.reader.aten_calls import hint, value_of
from fusegen.project import build

LAUNCH = 2e-6  # seconds that a kernel takes at least


@dataclass(frozen=True)
class Expected:
    """The expected seconds of a region."""

    kernel: float  # of its kernel
    eager: float  # of eager's kernels, each at the speed of a copy


def expected(
    spec: Path, of: RegionSpec, moved: Traffic, chip: Chip, which: Pass = Pass.FORWARD
) -> Expected:
    """Return the expected time of a pass of a region, which moves some bytes.

    A kernel takes the time to move its bytes or to issue its instructions, whichever is longer. The
    instructions of a kernel of elements are known; one of rows, windows or masks is as fast as its memory.
    """
    issuing = 0.0
    if not (of.region.reduces or of.region.drops):
        value = value_of(of.region.result)
        cost = element_costs(build.compiled_file(spec), which)[8 * value.element_size()]
        issuing = math.prod(map(hint, value.shape)) * cost.instructions / (chip.budget * chip.bandwidth)
    kernel = max(LAUNCH, moved.kernel / chip.bandwidth, issuing)
    return Expected(kernel, max(moved.passes * LAUNCH, moved.eager / chip.bandwidth))
