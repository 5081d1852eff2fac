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
    """The largest estimated error.

    Attributes:
        ulp: in ulp of the exact result; infinite if a result is NaN or infinite and the exact one is not.
        at: the inputs that have it.
        by: the operation that contributes most; none where a value is too large.
    """

    ulp: float
    at: Point
    by: str


@dataclass(frozen=True, slots=True)
class Excess:
    """The worst box in which a kernel's estimated error exceeds the contract.

    Attributes:
        own: the kernel's largest error in the box.
        eager: eager's largest there, in ulp.
    """

    own: Roundoff
    eager: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated errors of a pass on a device.

    Attributes:
        single: in float, the largest of all.
        excess: where float exceeds the contract; None where it keeps it everywhere.
        double: in ulp of a float32 result, with float's digits and double's range; None where float keeps
            the contract.
        float_ok: whether it keeps the contract, or double would err by as much where it does not.
    """

    single: Roundoff
    excess: Excess | None
    double: float | None
    float_ok: bool

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
    """A unary segment of a pass, which a piecewise cubic gives.

    Attributes:
        segment: a program of one input and one result.
        kernel: of it, in double.
        step: from each centre of its pieces to the next; a power of two.
        low, high: the first and the last centre, in steps, from which on a line gives it, if one does.
        within: the interval in which pieces give it, but for a few.
        zeros: the intervals around zeros in which another polynomial may take a piece's place.
    """

    segment: Program
    kernel: Kernel
    step: float
    low: int
    high: int
    within: Interval
    zeros: tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class Curves:
    """A pass of several tensors by curves.

    Attributes:
        kernel: that calls them, in float on CUDA.
        curves: in the order of their numbers.
        saves: whether an element takes less time so than by the formula in float.
    """

    kernel: Kernel
    curves: tuple[Curve, ...]
    saves: bool


@dataclass(frozen=True, slots=True)
class Missed:
    """The 16-bit inputs at which a pass misses its promise, of those that were tried.

    Attributes:
        by_float: by device, at how many of them float does.
        by_fast: at how many more the type of fast functions on CUDA does, which has no low words; of
            several tensors only.
        left: the inputs at which the results that are taken do: those of double, with series where these
            are taken; of several tensors those of float where double misses as many.
        series: whether they are.
    """

    by_float: Mapping[Device, int]
    left: tuple[Point, ...] = ()
    series: bool = False
    by_fast: int = 0


NONE_MISSED = Missed(dict.fromkeys(Device, 0))


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a pass.

    Attributes:
        unary: whether it is a function of one element, or the slope of one: 65,536 results are all there
            are in 16 bits.
        reads_params: whether it reads a parameter.
        has_params: whether the spec has parameters.
        float_ok: whether float is accurate enough for float32 results, by device.
        float_ok_in_16_bits: whether float is accurate enough for 16-bit results on CUDA.
        loses_16_bits: whether float's error is so large that a 16-bit result may be neither the correctly
            rounded value nor its neighbour, by device; of one tensor only.
        missed: the 16-bit inputs at which the promise is missed.
        plain_double_ok: whether single-word double is accurate enough on CUDA for what float is not.
        fast: whether the module has fast functions for 16-bit results on CUDA.
        fast_errs: whether those of this pass err by more than the math library's.
        verification_hides: whether verifying 16-bit results on CUDA takes no longer than moving them.
        compute_bound_in_16_bits: whether computing them alone takes longer than moving them.
        piecewise_pays: whether a piecewise cubic computes float32 results in less time on CUDA.
        approximates_on_cpu: whether 16-bit results on the CPU come from functions that are not exact.
        shorter_on_cpu: whether a shorter kernel is enough there where the rounding is verified.
        in_single_words: whether float32 results there have a kernel in single words.
        estimates: of the errors, by device; empty where PyTorch's own operations are computed.
        grid: where the pieces of a piecewise cubic lie, if it pays.
        curves: the pass with piecewise cubics for its unary segments, if that is accurate enough; of
            several tensors only.
    """

    unary: bool
    reads_params: bool
    has_params: bool
    float_ok: Mapping[Device, bool]
    float_ok_in_16_bits: bool
    loses_16_bits: Mapping[Device, bool]
    missed: Missed
    plain_double_ok: bool
    fast: bool
    fast_errs: bool
    verification_hides: bool
    compute_bound_in_16_bits: bool
    piecewise_pays: bool
    approximates_on_cpu: bool
    shorter_on_cpu: bool
    in_single_words: bool
    estimates: Mapping[Device, Estimate]
    grid: UniformGrid | None
    curves: Curves | None
