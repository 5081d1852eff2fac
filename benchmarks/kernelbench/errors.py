"""Errors of a result against float64, and how much larger than eager's they may be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK = 2**26  # elements that are compared at a time
DEVIATIONS = 4.0  # of a count, that chance explains


@dataclass(frozen=True)
class Errors:
    """The errors of the elements of a result."""

    largest: float  # of all
    typical: float  # root mean square of those that both results have within the tolerance
    off: float  # share of the elements beyond the tolerance


@dataclass(frozen=True)
class Size:
    """The reference size of an element's error: a number, and a share of the element's exact size."""

    least: float  # the number
    share: float  # the share


@dataclass(frozen=True)
class Turned:
    """The elements that are beyond the tolerance in one result only."""

    # ours, eager: their numbers
    ours: int
    eager: int

    @property
    def is_chance(self) -> bool:
        """True if equally accurate results differ by as much (McNemar 1947, Psychometrika 12)."""
        return self.ours - self.eager <= DEVIATIONS * math.sqrt(self.ours + self.eager)


NOTHING = Turned(0, 0)


@dataclass(frozen=True)
class Limits:
    """The ratios to eager's errors that ours may have."""

    # off, spare: factor of eager's share beyond the tolerance, and a share that is added
    off: float
    spare: float
    largest: float | None  # factor of eager's largest error; none where a single element says nothing
    typical: float  # factor of eager's typical error
    # units in the last place that are added to the largest error, and half of one to the typical
    ulp: float

    def broken(self, eager: Errors, ours: Errors, eps: float, turned: Turned = NOTHING) -> str:
        """Return the limit that is exceeded; nothing, if none is.

        Args:
            eager: its errors.
            ours: the candidate's.
            eps: of the dtype.
            turned: the elements that are beyond the tolerance in one result only. Where a convolution in
                TF32 puts many elements of both there, chance decides whose are more.
        """
        by_chance = turned != NOTHING and eager.off > 0 and turned.is_chance
        if ours.off > self.off * eager.off + self.spare and not by_chance:
            return (
                f"it is wrong: {ours.off:.2%} of the elements are beyond the tolerance, {eager.off:.2%} of "
                f"eager's; largest error {ours.largest:.3g}, eager's {eager.largest:.3g}"
            )
        if self.largest is not None and ours.largest > self.largest * eager.largest + self.ulp * eps:
            return _less("largest", ours.largest, eager.largest)
        if ours.typical > self.typical * eager.typical + eps / 2:
            return _less("typical", ours.typical, eager.typical)
        return ""


def _less(which: str, ours: float, eager: float) -> str:
    return f"it is less accurate than eager: {which} error {ours:.3g}, eager's {eager:.3g}"


def errors(
    eager: Tensor, ours: Tensor, exact: Tensor, size: Size, tolerance: float
) -> tuple[Errors, Errors]:
    """Return the errors of eager's result and of ours.

    Args:
        eager: its result.
        ours: the candidate's.
        exact: the same in float64.
        size: what errors are relative to.
        tolerance: how far an element may be off. The typical errors are of those elements that neither has
            beyond it: of others, the better one would have its largest errors count, and the worse one not.
    """
    found = [Sums(), Sums()]
    flat = [each.detach().reshape(-1) for each in (eager, ours)]
    real = exact.detach().reshape(-1)
    for start in range(0, real.numel(), CHUNK):  # float64 takes much memory
        off = [_off(each[start : start + CHUNK], real[start : start + CHUNK], size) for each in flat]
        both = (off[0] <= tolerance) & (off[1] <= tolerance)
        for sums, one in zip(found, off, strict=True):
            sums.add(one, both, tolerance)
    return found[0].errors(), found[1].errors()


@dataclass
class Sums:
    """The sums that the errors of a result are made of."""

    # count, within, shared: all elements, those within the tolerance, and those that both have within it
    count: int = 0
    within: int = 0
    shared: int = 0
    largest: float = 0.0  # error of all
    squares: float = 0.0  # of the errors of those that both have within the tolerance

    def add(self, off: Tensor, both: Tensor, tolerance: float) -> None:
        """Add the errors of some elements."""
        self.count += off.numel()
        self.within += int((off <= tolerance).sum())
        self.shared += int(both.sum())
        self.largest = max(self.largest, float(off.max()))
        self.squares += float(off[both].square().sum())

    def errors(self) -> Errors:
        """Return the errors of all elements that were added."""
        typical = math.sqrt(self.squares / self.shared) if self.shared else 0.0
        return Errors(self.largest, typical, 1 - self.within / self.count if self.count else 0.0)


def turned(ours: Tensor, eager: Tensor, exact: Tensor, size: Size, tolerance: float) -> Turned:
    """Return the elements that are beyond the tolerance in one result only; arguments as of `errors`."""
    flat = [each.detach().reshape(-1) for each in (ours, eager, exact)]
    counts = [0, 0]
    for start in range(0, exact.numel(), CHUNK):
        given, beside, real = (each[start : start + CHUNK] for each in flat)
        far, other = (_off(each, real, size) > tolerance for each in (given, beside))
        counts[0] += int((far & ~other).sum())
        counts[1] += int((other & ~far).sum())
    return Turned(*counts)


def _off(found: Tensor, exact: Tensor, size: Size) -> Tensor:
    """Return the error of each element; infinite where a NaN or an infinity stands on one side only."""
    real = exact.to(found.dtype).double()  # infinite where the dtype ends
    given = found.double()
    off = (given - exact).abs() / (size.least + size.share * exact.abs())
    off = torch.where((given == real) & real.isinf() | given.isnan() & real.isnan(), 0.0, off)
    return off.nan_to_num(nan=torch.inf, posinf=torch.inf)
