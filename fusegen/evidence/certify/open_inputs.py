"""The inputs that the filter of a sweep leaves open, in bounded memory."""

import torch
from torch import Tensor

from fusegen.evidence.certify.interval_filter import ROOM

MOST_OPEN = 2**25  # enclosures decide about 100,000 a second on one core


class OpenInputs:
    """Inputs that the filter did not decide: all, or every second, fourth, ... of more than `MOST_OPEN`.

    They are copied into one tensor: small ones that stay would fragment the memory of large ones that go.

    Attributes:
        kept: room for bit patterns, in the order in which they come.
        step: of how many one is kept.
        seen: how many came.
        count: how many are kept.
    """

    def __init__(self) -> None:
        """Takes room for as many as are kept and as come at once."""
        self.kept = torch.empty(MOST_OPEN + ROOM, dtype=torch.int32)
        self.step, self.seen, self.count = 1, 0, 0

    def add(self, patterns: Tensor) -> None:
        """Take in at most `ROOM` bit patterns, and halves those that are kept while they are too many."""
        chosen = patterns[-self.seen % self.step :: self.step]
        self.seen += len(patterns)
        self.kept[self.count : self.count + len(chosen)] = chosen
        self.count += len(chosen)
        while self.count > MOST_OPEN:
            half = self.kept[: self.count : 2].clone()
            self.count, self.step = len(half), 2 * self.step
            self.kept[: self.count] = half

    def ordered(self) -> Tensor:
        """Return those that are kept, in order."""
        return self.kept[: self.count].sort().values
