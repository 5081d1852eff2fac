"""The text of a standalone file of a scan, or of the place of an element, from that of a module."""

import re
from collections.abc import Collection
from typing import Any

from fusegen.codegen.standalone import row_file, text
from fusegen.codegen.standalone.items import Item
from fusegen.codegen.standalone.known import Known
from fusegen.codegen.standalone.phase_items import Loops, Types
from fusegen.codegen.standalone.reading import Module
from fusegen.codegen.standalone.row_dims import RowDims, row_dims

KNOWN = Known("Rows", "over reduction detached", row_file.KNOWN.methods, row_file.KNOWN.own)
TYPES = {"Scans", "Finds", "Stores", "Rows"}  # what structs are derived from
STRUCT = re.compile(r"^struct (?:Forward|Backward)\d* : (\w+)<", re.MULTILINE)
BACKWARD = re.compile(r"^struct Backward\d* : Scans<", re.MULTILINE)
GIVEN_UP = (
    "Given up: vectors, rows in registers, in place, out=, autocast, "
    "kernels in torch.func and forward mode."
)


def is_light(module: str) -> bool:
    """Return True if a module of scans has a file of its own kernels, not of the runtime."""
    structs = {*STRUCT.findall(module)}
    return structs <= TYPES and bool(structs & {"Scans", "Finds"}) and KNOWN.read(module) is not None


def context(module_text: str, dtypes: list[str]) -> dict[str, Any]:
    """Return what the templates of a file name, from a module's text beside a runtime, for some dtypes."""
    module = Module(row_file.prepared(module_text))
    dims = row_dims(module)
    dims = dims if dims.count else RowDims(dims.first, -dims.first, dims.by_channel, None)
    facts = row_file.facts(module) | dims.context() | {"types": text.types_of(module, dtypes)}
    facts |= {"scans": True, "finds": "reduction" in module.given, "is_loss": False, "sums": 0}
    facts |= {"two_scans": len(BACKWARD.findall(module.text)) > 1, "templates": ("rows/kernels",)}
    arguments = facts["names"], facts["scalar_names"]
    return Loops("scans", _statements, GIVEN_UP).file(module, facts, arguments, dtypes)


def _statements(own: Collection[Item]) -> dict[str, list[Types]]:
    """Return the types of names in phases, which compute in double."""
    names = dict.fromkeys(("in ", "out "), "array<double>") | {"p ": "params<double>", "length ": "double"}
    return {macro: [names | {"T": "double", "M": "double"}] for macro in ("ELEMENT", "VALUES")}
