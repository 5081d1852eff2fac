"""Rows so long that several blocks of a GPU have parts of one: the header of their kernels."""

from math import prod

from fusegen.codegen import read_once
from fusegen.compiler.row_kernels import CompiledRows
from fusegen.core.folds import Level
from fusegen.core.spec import Spec
from fusegen.core.targets import Device

LEAST = 2**19  # elements of a declared row; LEAST_LONG of the header is that of a call


def headers(of: CompiledRows, device: Device) -> list[str]:
    """Return the header, if the declared rows of a spec are so long, and all it reads are elements."""
    passes = (of.schedules.forward, of.schedules.backward)
    others = of.scans or of.in_parts or of.is_mixed or of.spec.indices or of.stored is not Level.ELEMENT
    others = others or any(each.loads or each.is_placed for each in passes) or not of.reduces
    if not device.launched or others or read_once.headers(of, device):
        return []
    return ["cuda/long_rows.cuh"] if _declared(of.spec) >= LEAST else []


def _declared(spec: Spec) -> int:
    """Return the elements of a declared row; 0 where a layer before it decides, or elements lie apart."""
    over = spec.over
    if over is None or over.count or over.of_channel or spec.producer:
        return 0
    parts = next((each.default for each in spec.init if each.name == over.groups), 1)
    return prod(over.parted(spec.inputs[0].shape)[1]) // (parts if isinstance(parts, int) else 1)
