"""Facts of a pass before its methods are chosen: everything measured, nothing chosen.

`compiler/measure.py` fills these in, `schedule/plan.py` reads them; `show SPEC --stage facts` prints them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fusegen.core.cubic import UniformGrid
from fusegen.core.interval import Interval, Point
from fusegen.core.ir import Kernel
from fusegen.core.targets import Device
from fusegen.core.term import Program


@dataclass(frozen=True, slots=True)
class Roundoff:
    """The largest estimated error."""

    # in ulp of the exact result; infinite if a result is NaN or infinite and the exact one is not
    ulp: float
    at: Point  # the inputs that have it
    by: str  # the operation that contributes most; none where a value is too large


@dataclass(frozen=True, slots=True)
class Excess:
    """The worst box in which a kernel's estimated error exceeds the contract."""

    own: Roundoff  # the kernel's largest error in the box
    eager: float  # eager's largest there, in ulp


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated errors of a pass on a device."""

    single: Roundoff  # in float, the largest of all
    excess: Excess | None  # where float exceeds the contract; None where it keeps it everywhere
    # in ulp of a float32 result, with float's digits and double's range; None where float keeps the
    # contract
    double: float | None
    float_ok: bool  # whether it keeps the contract, or double would err by as much where it does not

    @property
    def worst(self) -> Roundoff:
        """The error in float that exceeds the contract by most; the largest where none does."""
        return self.excess.own if self.excess else self.single

    @property
    def in_double(self) -> float:
        """A bound on the error in double: that in float where it was not estimated."""
        return self.single.ulp if self.double is None else self.double


@dataclass(frozen=True, slots=True)
class Curve:
    """A unary segment of a pass, which a piecewise cubic gives."""

    segment: Program  # a program of one input and one result
    kernel: Kernel  # of it, in double
    step: float  # from each centre of its pieces to the next; a power of two
    # low, high: the first and the last centre, in steps, from which on a line gives it, if one does
    low: int
    high: int
    within: Interval  # the interval in which pieces give it, but for a few
    # the intervals around zeros in which another polynomial may take a piece's place
    zeros: tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class Curves:
    """A pass of several tensors by curves."""

    kernel: Kernel  # that calls them, in float on CUDA
    curves: tuple[Curve, ...]  # in the order of their numbers
    saves: bool  # whether an element takes less time so than by the formula in float


@dataclass(frozen=True, slots=True)
class Missed:
    """The 16-bit inputs at which a pass misses its promise, of those that were tried."""

    by_float: Mapping[Device, int]  # by device, at how many of them float does
    # the inputs at which the results that are taken do: those of double, with series where these are taken;
    # of several tensors those of float where double misses as many
    left: tuple[Point, ...] = ()
    series: bool = False  # whether they are
    # at how many more the type of fast functions on CUDA does, which has no low words; of several tensors
    # only
    by_fast: int = 0


NONE_MISSED = Missed(dict.fromkeys(Device, 0))


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a pass."""

    # whether it is a function of one element, or the slope of one: 65,536 results are all there are in 16
    # bits
    unary: bool
    reads_params: bool  # whether it reads a parameter
    has_params: bool  # whether the spec has parameters
    float_ok: Mapping[Device, bool]  # whether float is accurate enough for float32 results, by device
    float_ok_in_16_bits: bool  # whether float is accurate enough for 16-bit results on CUDA
    # whether float's error is so large that a 16-bit result may be neither the correctly rounded value nor
    # its neighbour, by device; of one tensor only
    loses_16_bits: Mapping[Device, bool]
    missed: Missed  # the 16-bit inputs at which the promise is missed
    plain_double_ok: bool  # whether single-word double is accurate enough on CUDA for what float is not
    fast: bool  # whether the module has fast functions for 16-bit results on CUDA
    fast_errs: bool  # whether those of this pass err by more than the math library's
    verification_hides: bool  # whether verifying 16-bit results on CUDA takes no longer than moving them
    compute_bound_in_16_bits: bool  # whether computing them alone takes longer than moving them
    piecewise_pays: bool  # whether a piecewise cubic computes float32 results in less time on CUDA
    approximates_on_cpu: bool  # whether 16-bit results on the CPU come from functions that are not exact
    shorter_on_cpu: bool  # whether a shorter kernel is enough there where the rounding is verified
    in_single_words: bool  # whether float32 results there have a kernel in single words
    # of the errors, by device; empty where PyTorch's own operations are computed
    estimates: Mapping[Device, Estimate]
    grid: UniformGrid | None  # where the pieces of a piecewise cubic lie, if it pays
    # the pass with piecewise cubics for its unary segments, if that is accurate enough; of several tensors
    # only
    curves: Curves | None
    # whether it has sines of turns, which may be 0 at every sample of a fit, so that none is tried
    has_turns: bool = False
