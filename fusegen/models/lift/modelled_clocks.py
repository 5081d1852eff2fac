"""The two clocks of a region on a chip that is not here: modelled, for the rule of measured times.

The GPU takes the time of the bytes and the instructions. The CPU pays a price for each call: one for each
operation of eager's, and one for a kernel.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fusegen.core.chips import Chip
from fusegen.core.method import Pass
from fusegen.errors import NoRegion, Span
from fusegen.models.lift.clocks import FORWARD, Times, Timing, gaining
from fusegen.models.lift.found import Found
from fusegen.models.lift.regions.builds import Named
from fusegen.models.lift.regions.expected import expected
from fusegen.models.lift.regions.gradient import gradient_traffic
from fusegen.models.lift.regions.region_spec import RegionSpec
from fusegen.models.lift.regions.worth import traffic

# Seconds until the CPU may go on behind a call of PyTorch's and of a kernel, on the host of an H200:
# hardsigmoid of small tensors (docs/reports/speed.md). A kernel whose gradient is recorded takes some 20 us
# more than eager's operation (docs/lift.md).
EAGER_CALL, KERNEL_CALL, RECORDED = 8.1e-6, 10.4e-6, 20e-6
REMEDY = "leave it to PyTorch"
LOSES = "on {chip} a kernel is expected to be later than the operations that it replaces"


def gaining_on(chip: Chip, of: Found, names: Named) -> tuple[Found, Named, tuple[Timing, ...]]:
    """Return the regions that gain on a chip, their specs, and the times of all of them.

    Args:
        chip: it.
        of: the regions of a model.
        names: of these, with their specs.

    Raises:
        NoRegion: none gains.
    """
    calls = [(region, names.names[region.key]) for region in of.chosen]
    with TemporaryDirectory() as folder:
        specs = {path.stem: Path(folder) / path.name for path in names.texts}
        for path, text in names.texts.items():
            specs[path.stem].write_text(text, encoding="utf-8")
        kept, timings = gaining(
            calls, lambda each, name, what: modelled(each, (name, what), specs, chip), of.modes.graphs
        )
    why = LOSES.format(chip=chip.title)
    if not kept:
        raise NoRegion(Span(of.name), node=of.name, why=why, remedy=REMEDY)
    chosen = {name for _, name in kept}
    texts = {path: text for path, text in names.texts.items() if path.stem in chosen}
    return of.without([each for each, _ in kept], why), replace(names, texts=texts), timings


def modelled(
    of: RegionSpec, named: tuple[str, str], specs: Mapping[str, Path], chip: Chip
) -> Timing | None:
    """Return the times of a region; None where they are not known.

    These are the times of steps of rows, windows, masks and batch norms, and of a region with a convolution
    in front.

    Args:
        of: the region.
        named: the name of its kernel, and what runs, forward or a step.
        specs: by the names.
        chip: it.
    """
    region, (name, what) = of.region, named
    moved = traffic(region)
    if of.front is not None or (what != FORWARD and (region.reduces or region.drops or region.layer)):
        return None
    forward = expected(specs[name], of, moved, chip)
    eager, kernel = Times(moved.passes * EAGER_CALL, forward.eager), Times(KERNEL_CALL, forward.kernel)
    if what == FORWARD:
        return Timing(name, what, eager, kernel)
    slopes = replace(gradient_traffic(of), passes=moved.passes)  # one for each operation, or more
    back = expected(specs[name], of, slopes, chip, Pass.BACKWARD)
    return Timing(
        name,
        what,
        Times(2 * eager.enqueue, eager.device + back.eager),
        Times(2 * KERNEL_CALL + RECORDED, kernel.device + back.kernel),
    )
