"""The results of one output at some points, beside eager's and the exact ones."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fusegen.evidence.certify import exact
from fusegen.evidence.certify.exact import Reals
from fusegen.evidence.certify.findings import Breach, Local, Output
from fusegen.evidence.certify.slopes import Points
from fusegen.evidence.certify.tried_inputs import FRACTION_BITS, INTEGERS

LIMIT = 4.0  # in ulp


@dataclass(frozen=True)
class Compared:
    """The results of one output."""

    name: str  # of the output
    points: Points  # the inputs, a tensor of n elements for each
    given: Tensor  # ours, of n elements
    eager: Tensor | None  # eager's; None where there is none
    real: Reals  # the exact results

    @cached_property
    def ours(self) -> Tensor:
        """The errors of ours in ulp, float64."""
        return exact.counted_errors(self.given, self.real)

    @cached_property
    def theirs(self) -> Tensor:
        """The errors of eager in ulp, float64; 0 where there is no eager."""
        if self.eager is None:
            return torch.zeros_like(self.ours)
        return exact.counted_errors(self.eager, self.real)

    def output(self) -> Output:
        """Return the errors as findings."""
        ours = exact.accuracy(self.points, self.given, self.real)
        over = (int((self.ours > LIMIT).sum()), int((self.theirs > LIMIT).sum()))
        if self.eager is None:
            return Output(self.name, ours, local=Local(over))
        differ = exact.bits_differ(self.given, self.eager)
        worse = differ & (self.ours > self.theirs * (1 + 2**-12))
        theirs = exact.accuracy(self.points, self.eager, self.real)
        return Output(self.name, ours, theirs, int(differ.sum()), int(worse.sum()), local=Local(over))

    def binades(self) -> tuple[Breach, ...]:
        """Return the breach of rule C4: binades in which more results are misrounded than of eager."""
        if self.eager is None:
            return ()
        x = self.points[0]
        bits = x.view(INTEGERS[x.dtype]).long() & (2 ** (8 * x.element_size()) - 1)
        binade = bits >> FRACTION_BITS[x.dtype]
        wrong = [exact.misrounded(results, self.real) for results in (self.given, self.eager)]
        more = sum(
            sign * torch.bincount(binade[mask], minlength=2**12)
            for sign, mask in zip((1, -1), wrong, strict=True)
        )
        assert isinstance(more, Tensor)
        count = int((more > 0).sum())
        if not count:
            return ()
        here = torch.nonzero((binade == int(more.argmax())) & wrong[0])[0]
        at = float(x[here]).hex()
        errors = float(self.ours[here]), float(self.theirs[here])
        return (Breach("C4", count, len(binade.unique()), "binades", *errors, (at,)),)
