"""The plan: the method of each pass, device and dtype.

`CHOICE` is the only place where a method is chosen. A row reads `Facts` and gives a `Method`; everything
downstream matches on that. `core/candidates.py` does not choose it: a table, cubics and an evaluation have
no common cost, since what hides behind the memory depends on the chip.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fusegen.core.dtypes import ELEMENTS
from fusegen.core.facts import Facts
from fusegen.core.method import (
    DOUBLE,
    FAST,
    FLOAT,
    PLAIN,
    SERIES,
    SINGLE_RESULT,
    SINGLE_WORD,
    Arithmetic,
    AtDefaults,
    Both,
    Formula,
    Grid,
    Method,
    Pass,
    Piecewise,
    Segmented,
    Table,
    Verified,
    arithmetics,
)
from fusegen.core.targets import Device

Cell = tuple[Pass, Device, str]  # the last is a dtype


def on_cuda_64(_: Facts) -> Method:
    """Float64 on CUDA: the formula."""
    return DOUBLE


def on_cuda_32(f: Facts) -> Method:
    """Float32 on CUDA: float if it is accurate enough, in the form that takes less time."""
    if f.float_ok[Device.CUDA]:
        if f.curves and f.curves.saves:
            return Segmented(FLOAT)
        return Piecewise(Grid.UNIFORM, FLOAT) if f.piecewise_pays else FLOAT
    if not f.unary or f.has_turns:
        return Segmented(_exact(f)) if f.curves else _exact(f)
    fitted = Piecewise(Grid.OCTAVES, _exact(f) if f.has_params else DOUBLE)
    return AtDefaults(fitted, _exact(f)) if f.reads_params else fitted


def on_cuda_16(f: Facts) -> Method:
    """16 bits on CUDA: the cheapest method whose results are correctly rounded, or next to it."""
    if f.missed.series:
        return Table(Arithmetic.SERIES)
    lost = f.loses_16_bits[Device.CUDA]
    if not (f.float_ok[Device.CUDA] or f.float_ok_in_16_bits):
        return _in_double(f)
    if f.missed.by_fast:  # verification does not tell what cancels without low words
        return _in_double(f) if lost else FLOAT
    computed = FAST if f.fast else FLOAT
    if f.fast_errs and f.verification_hides and not lost:
        return Verified(computed, DOUBLE)
    if f.unary and (f.fast_errs or f.compute_bound_in_16_bits):
        return _tabulated(f, Verified(computed, DOUBLE) if f.fast_errs else computed)
    return _in_double(f) if lost else computed


def on_cpu_64(_: Facts) -> Method:
    """Float64 on the CPU: the formula."""
    return DOUBLE


def on_cpu_32(f: Facts) -> Method:
    """Float32 on the CPU: float if it is accurate enough, else cubics or double."""
    if f.float_ok[Device.CPU]:
        return SINGLE_RESULT if f.in_single_words else FLOAT
    return Piecewise(Grid.OCTAVES, DOUBLE) if _is_fitted(f) else DOUBLE


def _is_fitted(f: Facts) -> bool:
    """Return True if cubics of one number give the results on the CPU."""
    return f.unary and not (f.reads_params or f.has_turns)


def on_cpu_16(f: Facts) -> Method:
    """16 bits on the CPU: the method of float32, with verified rounding where it approximates."""
    if f.missed.series:
        return SERIES
    match on_cpu_32(f):
        case Piecewise() as fitted:
            return Verified(fitted, DOUBLE)
        case _ if f.loses_16_bits[Device.CPU]:
            return DOUBLE
        case method if method in (FLOAT, SINGLE_RESULT) and f.approximates_on_cpu:
            return Verified(SINGLE_WORD if f.shorter_on_cpu else FLOAT, DOUBLE)
        case method:
            return FLOAT if method == SINGLE_RESULT else method


CHOICE: Mapping[tuple[Device, int], Callable[[Facts], Method]] = {
    (Device.CUDA, 16): on_cuda_16,
    (Device.CUDA, 32): on_cuda_32,
    (Device.CUDA, 64): on_cuda_64,
    (Device.CPU, 16): on_cpu_16,
    (Device.CPU, 32): on_cpu_32,
    (Device.CPU, 64): on_cpu_64,
}


def _exact(f: Facts) -> Formula:
    """Return the formula in double, in single words if these are accurate enough."""
    return PLAIN if f.plain_double_ok else DOUBLE


def _in_double(f: Facts) -> Method:
    """Return results of double, from a table where there are few."""
    return _tabulated(f, _exact(f)) if f.unary else _exact(f)


def _tabulated(f: Facts, otherwise: Formula | Verified) -> Method:
    """Return a table, which is of the parameters' defaults."""
    return AtDefaults(Table(), otherwise) if f.has_params else Table()


@dataclass(frozen=True)
class Plan:
    """The methods of all results of a spec."""

    methods: Mapping[Cell, Method]  # by pass, device and dtype

    def __getitem__(self, cell: Cell) -> Method:
        """Return the method of a pass, device and dtype."""
        return self.methods[cell]

    def of(self, which: Pass, device: Device) -> dict[str, Method]:
        """Return the methods of a kernel, by dtype."""
        return {dtype: found for (p, d, dtype), found in self.methods.items() if (p, d) == (which, device)}

    def narrow(self, *passes: Pass) -> frozenset[Method]:
        """Return the methods of passes on CUDA for elements of fewer than 64 bits."""
        every = (self.of(which, Device.CUDA).items() for which in passes)
        return frozenset(method for own in every for dtype, method in own if ELEMENTS[dtype].bits < 64)

    def arithmetics(self, which: Pass, device: Device) -> frozenset[Arithmetic]:
        """Return the arithmetics that a kernel evaluates formulas in."""
        return frozenset().union(*map(arithmetics, self.of(which, device).values()))

    def falls_to_double(self, which: Pass, device: Device) -> bool:
        """True if double computes a kernel's float32 results, or its 16-bit ones if it has no others."""
        match self.in_bits(which, device, 32) or self.in_bits(which, device, 16):
            case Formula(arithmetic) | AtDefaults(Table(), Formula(arithmetic)):
                return Formula(arithmetic) in (DOUBLE, PLAIN)
        return False

    def in_bits(self, which: Pass, device: Device, bits: int) -> Method | None:
        """Return the method of a kernel for elements of some width, if the spec has these."""
        own = self.of(which, device).items()
        return next((method for dtype, method in own if ELEMENTS[dtype].bits == bits), None)


def choose(facts: Both[Facts], dtypes: tuple[str, ...]) -> Plan:
    """Return the plan for tensors of some dtypes, by the facts of each pass."""
    return Plan(
        {
            (which, device, dtype): CHOICE[device.like, ELEMENTS[dtype].bits](facts[which])
            for which in Pass
            for device in Device
            for dtype in dtypes
        }
    )
