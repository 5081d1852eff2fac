"""The choice of fast functions for 16-bit results on CUDA, those of `cuda/fast_functions.cuh`."""

from collections.abc import Iterable

from fusegen.core.ir import Kernel, operations
from fusegen.core.ops import ROUNDED, ROWS, TRANSCENDENTAL


def errs(kernel: Kernel) -> bool:
    """Return True if a kernel holds functions whose fast forms err by more than the math library's."""
    return any(ROWS[name].fast for name in operations(kernel))


def approximates(kernels: Iterable[Kernel]) -> bool:
    """True if kernels hold functions that may be cheaper where 16 bits are kept of a result."""
    used = {name for kernel in kernels if kernel.device.fast_types for name in operations(kernel)}
    return ROUNDED not in used and bool(used & TRANSCENDENTAL)
