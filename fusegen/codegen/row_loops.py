"""The loops of a pass over the elements of a row: which phases are one, on CUDA."""

from collections.abc import Sequence

from fusegen.codegen import centred_sums, read_once, saved_values
from fusegen.codegen.row_indices import picked_apart
from fusegen.compiler.row_kernels import CompiledRows
from fusegen.core.method import Pass
from fusegen.core.targets import Device


def loops(of: CompiledRows, which: Pass, device: Device, types: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the type of a pass's values and those of its loops, out of the types of its phases."""
    types = picked_apart(of, which, device, read_once.loops(of, which, device, types))
    saved = saved_values.loops(of, which, device, types)
    return saved or centred_sums.loops(of, which, device, types)
