"""The text of a standalone file of a scan, or of the place of an element, from that of a module."""

import re
from collections.abc import Collection
from typing import Any

from fusegen.codegen.standalone import file_parts, helpers, row_file, text
from fusegen.codegen.standalone.items import Item
from fusegen.codegen.standalone.phase_items import Loops, Types
from fusegen.codegen.standalone.reading import Module
from fusegen.codegen.standalone.row_dims import RowDims, row_dims
from fusegen.core.dtypes import ELEMENTS

KEYWORDS = {  # of the registration of a module
    *("interface", "eager", "eager_gradient", "forward", "backward", "sources"),
    *("over", "reduction", "detached"),
}
TYPES = {"Scans", "Finds", "Stores", "Rows"}  # what structs are derived from
HEADERS = {  # what scans join is in a header of its own
    '"cuda/scans.cuh"': '"cuda/math.cuh"\n#include "scan_phases.h"',
    '"cpu/scans.h"': '"cpu/math.h"\n#include "scan_phases.h"',
}
STRUCT = re.compile(r"^struct (?:Forward|Backward)\d* : (\w+)<", re.MULTILINE)
BACKWARD = re.compile(r"^struct Backward\d* : Scans<", re.MULTILINE)
GIVEN_UP = (
    "Given up: vectors, rows in registers, in place, out=, autocast, "
    "kernels in torch.func and forward mode."
)


def is_light(module: str) -> bool:
    """Return True if a module of scans has a file of its own kernels, not of the runtime."""
    structs = {*STRUCT.findall(module)}
    if row_file.REGISTERED.findall(module) != ["Rows"] or not structs & {"Scans", "Finds"}:
        return False
    read, called = Module(module), {*row_file.CALLED.findall(module)}
    is_known = structs <= TYPES and called <= row_file.METHODS and set(read.given) <= KEYWORDS
    return is_known and row_file.OWN.isdisjoint({read.name, *read.signature("forward")})


def context(module_text: str, dtypes: Collection[str]) -> dict[str, Any]:
    """Return what the templates of a file name, from a module's text beside a runtime, for some dtypes."""
    for header, other in HEADERS.items():
        module_text = module_text.replace(header, other)
    module = Module(row_file.prepared(module_text))
    return _context(module, [d for d in ELEMENTS if d in dtypes]) | {"templates": ("rows/kernels",)}


def _context(module: Module, dtypes: list[str]) -> dict[str, Any]:
    dims, types = row_dims(module), text.types_of(module, dtypes)
    dims = dims if dims.count else RowDims(dims.first, -dims.first, dims.by_channel, None)
    finds = "reduction" in module.given
    context = row_file.facts(module) | dims.context()
    context |= {"types": types, "scans": True, "finds": finds, "is_loss": False, "sums": 0}
    context["two_scans"] = len(BACKWARD.findall(module.text)) > 1
    laid = Loops("scans", _statements).laid(module, context)
    own = text.python_of(module, context["names"], context["scalar_names"])
    made = own | context | laid | file_parts.head(module, laid, dtypes)
    return made | {"given_up": GIVEN_UP, "helpers": helpers.called(own["functions"])}


def _statements(own: Collection[Item]) -> dict[str, list[Types]]:
    """Return the types of names in phases, which compute in double."""
    names = dict.fromkeys(("in ", "out "), "array<double>") | {"p ": "params<double>", "length ": "double"}
    return {macro: [names | {"T": "double", "M": "double"}] for macro in ("ELEMENT", "VALUES")}
