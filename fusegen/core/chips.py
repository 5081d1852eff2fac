"""Chips that kernels are modelled on: what they issue and what a copy moves, in a second."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Chip:
    """A chip."""

    title: str  # as sentences have it
    multiprocessors: int
    lanes: int  # of floats in each
    gigahertz: float  # that these run at
    gigabytes: float  # that a copy reads and writes in a second

    @property
    def budget(self) -> float:
        """The instructions that are issued while a byte is moved."""
        return self.multiprocessors * self.lanes * self.gigahertz / self.gigabytes

    @property
    def bandwidth(self) -> float:
        """The bytes that a copy moves in a second."""
        return self.gigabytes * 1e9


# SMs, lanes and clocks are those of NVIDIA's data sheets and white papers of the SXM modules. An H200's
# copy is measured (`fusegen bench`), 0.88 of the 4.8 TB/s of its memory; the others have that share of
# their 2.04 (A100 of 80 GB), 3.35 (H100) and 8 TB/s (B200). An A100 computes floats in half its lanes.
CHIPS = {
    "a100": Chip("an A100", 108, 64, 1.41, 1790),
    "h100": Chip("an H100", 132, 128, 1.98, 2950),
    "h200": Chip("an H200", 132, 128, 1.98, 4230),
    "b200": Chip("a B200", 148, 128, 1.85, 7050),
}
USUAL = CHIPS["h200"]
