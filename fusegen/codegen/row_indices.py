"""The C++ of rows of which an index picks an element: headers, and the phase that stores it apart."""

from collections.abc import Sequence

from fusegen.codegen.render.forward_arguments import reduces_index
from fusegen.compiler.row_kernels import CompiledRows
from fusegen.core.folds import Level
from fusegen.core.method import Pass
from fusegen.core.targets import Device


def index_headers(of: CompiledRows, device: Device) -> list[str]:
    """Return the headers of kernels that read an index."""
    if not of.spec.indices:
        return []
    apart = any(_stores_apart(of, which, device) for which in Pass)
    is_total = device.launched and reduces_index(of.spec)
    total = f"cuda/{('row', 'wide')[of.is_wide]}_total.cuh"
    return ["cuda/picked_apart.cuh"] * apart + [total if is_total else "row_index.h"]


def picked_apart(of: CompiledRows, which: Pass, device: Device, types: Sequence[str]) -> Sequence[str]:
    """Return the types of a pass's phases, the last one of which stores the picked element apart."""
    return [*types[:-1], f"PickedApart<{types[-1]}>"] if _stores_apart(of, which, device) else types


def _stores_apart(of: CompiledRows, which: Pass, device: Device) -> bool:
    """Return True if a pass stores results of elements, which read the index of their row."""
    if not device.launched or of.in_parts or of.scans:
        return False
    if which is Pass.FORWARD and of.stored is not Level.ELEMENT:
        return False
    *_, last = of.kernels[which, device]
    return any(each.name in last.elements.inputs for each in of.spec.indices)
