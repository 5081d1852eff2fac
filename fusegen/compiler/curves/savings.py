"""The time that curves save: instructions of a float32 element on CUDA, by the formula and by curves."""

from fusegen.core.ir import Kernel
from fusegen.core.method import Arithmetic
from fusegen.schedule import cost

LEAST = 24  # instructions of a segment, for a curve, which takes 14
SAVED = 8  # instructions of an element, for a kernel by curves


def is_large(segment: Kernel) -> bool:
    """Return True if the formula of a segment takes more instructions than a curve."""
    moved = cost.LOOP_OVERHEAD + len(segment.inputs) + len(segment.results)
    return _instructions(segment) - moved >= LEAST


def exposed(kernel: Kernel) -> int:
    """Return the instructions of a float32 element in float that do not hide behind the memory."""
    return 0 if cost.hides(kernel) else _instructions(kernel)


def saves(before: Kernel, by_curves: Kernel) -> bool:
    """Return True if an element takes longer to compute than to move, and less time by curves."""
    return exposed(before) - _instructions(by_curves) >= SAVED


def _instructions(kernel: Kernel) -> int:
    return cost.instructions(kernel, Arithmetic.FLOAT)
