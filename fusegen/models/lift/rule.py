"""The rule that decides which regions of a graph have a kernel, and why others have none."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import fx

from fusegen.core.chips import Chip
from fusegen.core.method import Pass
from fusegen.models.lift.regions.extremes import NAMES
from fusegen.models.lift.regions.gradient import gradient_traffic
from fusegen.models.lift.regions.partition import Partition, partition
from fusegen.models.lift.regions.pointwise import operation_of
from fusegen.models.lift.regions.region import Region
from fusegen.models.lift.regions.region_spec import RegionSpec, refused, written
from fusegen.models.lift.regions.worth import CALL, Traffic, in_bytes, least, size, traffic
from fusegen.models.reader import row_calls
from fusegen.models.reader.aten_calls import hint, value_of
from fusegen.models.reader.aten_table import ROWS, Rows
from fusegen.models.reader.row_calls import EXPONENTIALS
from fusegen.models.reader.row_gains import EVALUATION, FUSED, GAINS, TRAINING, WRITTEN_OUT

ALONE = "alone it is as fast in PyTorch as in a kernel"
SMALL = "it moves so few bytes that the call of a kernel takes longer"
GRADIENT = "in training a kernel and that of its gradient save too few bytes"
FORWARD = (Pass.FORWARD,)
ASKED = "the rule is that of {place} (--for {device}), where a kernel has to save {least} in a call"
CLOCKS = (
    "the clocks of {chip} are modelled: a kernel runs where its later one is not behind that of PyTorch"
)
ANY = 1  # byte that a kernel has to save, where clocks decide
EVERY = "every region has a kernel, as --every asks"
PLACES = {"cpu": "the CPU", "cuda": "CUDA"}


@dataclass(frozen=True)
class Rule:
    """The savings from which on a region has a kernel of its own."""

    least_passes: int = 2  # of eager over memory, from which on a region has a kernel: 1 for every region
    passes: tuple[Pass, ...] = FORWARD  # that run; in training those of the gradient, too
    device: str = ""  # the type of that on which kernels run; by default that of the example inputs
    rows: Rows = field(default_factory=lambda: ROWS)  # the table of operators
    most_results: int = 1  # of a region of rows
    saved: int | None = None  # bytes that a kernel has to save in a call; by default as the device says

    def in_each_mode(self, graphs: tuple[fx.Graph, ...]) -> tuple[Rule, ...]:
        """The rules for the graphs of a model: one for both modes, or those of training and evaluation."""
        return (self,) if len(graphs) == 1 else (replace(self, passes=tuple(Pass)), self)

    def partition(self, graph: fx.Graph) -> Partition:
        """Return the regions of a graph, of rows where that is faster."""
        return partition(graph, self.rows, self.is_faster, self.most_results)

    def spec(self, region: Region) -> tuple[RegionSpec | None, str]:
        """Return the spec of a region that has a kernel, or why it has none."""
        moved = traffic(region)
        if not self._accepts(region, moved):
            return None, SMALL if moved.saved > 0 else ALONE
        found = written(region)
        why = refused(found) or ("" if self._accepts_gradient(found, moved) else GRADIENT)
        return (None, why) if why else (found, "")

    def is_faster(self, region: Region) -> bool:
        """Tell if a kernel that reduces rows or windows is faster than the operations of a region."""
        whole = region.whole  # of 32 bits where a region of 16 bits casts what it reduces
        if self.least_passes < 2 or (region.layer and not whole.is_contiguous()):
            return self.least_passes < 2
        of = value_of(region.result).dtype
        kind = (
            ("batch_norm", TRAINING if self._is_training else EVALUATION) if region.layer else _kind(region)
        )
        gain = GAINS.get((self.device or whole.device.type, *kind, of.itemsize, self._is_training))
        sizes = [*map(hint, whole.shape)]
        columns = math.prod(sizes[2:]) if region.layer else sizes[-1]
        return gain is not None and gain.takes(columns, math.prod(sizes))

    def adds_bias(self, region: Region, convolution: fx.Node) -> bool:
        """True if a region has a kernel that adds the bias of a convolution, for which eager has passes."""
        whole = size(convolution)
        moved = traffic(region, 2 * whole)
        if region.layer or not self._accepts(region, moved):  # a norm takes the bias away again
            return False
        found, with_sum = written(region), replace(moved, eager=moved.eager + whole)
        return not refused(found) and self._accepts_gradient(found, with_sum)

    @property
    def _is_training(self) -> bool:
        return Pass.BACKWARD in self.passes

    def _accepts(self, region: Region, moved: Traffic, calls: int = 1) -> bool:
        saved = least(region, self.device) if self.saved is None else self.saved
        return self.least_passes < 2 or moved.saved >= calls * saved

    def _accepts_gradient(self, of: RegionSpec, forward: Traffic) -> bool:
        if self.least_passes < 2 or not self._is_training or of.region.reduces:
            return True
        return self._accepts(of.region, forward + gradient_traffic(of), calls=2)


def _kind(of: Region) -> tuple[str, str]:
    """Return the function of the table of gains that a region is like, and how it is written.

    Kernels of windows, of other rows than the last dimension, and those whose result is a value of each row
    are other functions, which no table has before they are timed.
    """
    if of.rows is None:
        return "dropout" if of.drops else "pool", FUSED
    made = {operation_of(part.node) for part in of.parts}
    if any(part.node.target in NAMES for part in of.parts):
        return "extreme", WRITTEN_OUT
    name = "softmax" if made & EXPONENTIALS else next(iter(sorted(made & row_calls.NORMS)), "rms_norm")
    is_last = of.rows.dims == (of.whole.dim() - 1,)
    where = "" if is_last else "_of_other_dimensions"
    result = "_to_values" if of.result in of.of_rows else ""
    return f"{name}{where}{result}", FUSED if made & row_calls.FUSED else WRITTEN_OUT


def usual_device() -> str:
    """Return the type of the device whose rule is asked where none is named."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def asked(device: str, least_passes: int, chip: Chip | None = None) -> str:
    """Return the sentence that says for which device the rule was asked."""
    if least_passes < 2:
        return EVERY
    if chip is not None:
        return CLOCKS.format(chip=chip.title)
    return ASKED.format(place=PLACES[device], device=device, least=in_bytes(CALL[device]))
