"""The text of a standalone file of channels with the statistics of a batch, from that of a module."""

import ast
import re
from collections.abc import Collection
from typing import Any

from fusegen.codegen.standalone import file_parts, helpers, row_file, text
from fusegen.codegen.standalone.phase_items import Loops
from fusegen.codegen.standalone.reading import Module
from fusegen.core.dtypes import ELEMENTS

KEYWORDS = {"interface", "eager", "eager_gradient", "forward", "backward", "sources", "channels"}
METHODS = {
    *("function", "scalar", "with_options", "write", "run"),
    *("along", "linear", "layer", "channel_sum"),
}
OWN = frozenset(  # names of a file, which a module's functions and tensors must not have
    "torch ctypes nn Tensor Call Kernels LIBRARY TYPES NAME ctx made tensors results run operator kernels "
    "numbers moments scalars of_batch normalised layer channel_sum by_operations views plain known "
    "eager transformed".split()
)
HEADERS = {'"cuda/channels.cuh"': '"cuda/math.cuh"', '"cpu/channels.h"': '"cpu/math.h"'}
GIVEN_UP = (
    "Given up: blocks that share a channel, the order of sums, in place, out=, autocast, "
    "kernels in torch.func and forward mode."
)


def is_light(module: str) -> bool:
    """Return True if a module of channels has a file of its own kernels, not of the runtime."""
    if re.findall(r"^\w*KERNELS = (\w+)\(", module, re.MULTILINE) != ["Channels"]:
        return False
    read, called = Module(module), set(re.findall(r"\bKERNELS\.(\w+)", module))
    given = {*read.signature("forward")} - {"moments"}
    is_known = called <= METHODS and set(read.given) <= KEYWORDS and "struct Backward " in module
    return is_known and OWN.isdisjoint({read.name, *given})


def context(module_text: str, dtypes: Collection[str]) -> dict[str, Any]:
    """Return what the templates of a file name, from a module's text beside a runtime, for some dtypes."""
    for header, other in HEADERS.items():
        module_text = module_text.replace(header, other)
    module = Module(row_file.prepared(module_text))
    return _context(module, [d for d in ELEMENTS if d in dtypes]) | {"templates": ("channels/kernels",)}


def _context(module: Module, dtypes: list[str]) -> dict[str, Any]:
    forward = module.signature("forward")
    tensors = [name for name, kind in forward.items() if kind == "Tensor" and name != "moments"]
    scalars = [name for name, kind in forward.items() if kind == "float" and name != "batch"]
    numbers = int(ast.literal_eval(module.given["channels"]))
    elements = len(tensors) - numbers
    types = text.types_of(module, dtypes)
    flags = dict.fromkeys(("split", "columns", "runs", "batch"), True)
    flags |= dict.fromkeys(("picks", "sums", "runs_once", "groups", "wide"), False)
    context = flags | {
        "name": module.name,
        "types": types,
        "tensors": 1 + 2 * elements,
        "scalars": len(scalars),
        "elements": elements,
        "gradients": elements,
        "numbers": numbers,
        "chunks": row_file.CHUNKS,
        "own_tensors": ", ".join(tensors[:elements]),
        "own_numbers": ", ".join(tensors[elements:]),
    }
    laid = Loops("rows", row_file.statements(types)).laid(module, context)
    own = text.python_of(module, tensors, scalars)
    own["eager"] = own["eager"].replace("KERNELS.", "")
    made = own | context | laid | file_parts.head(module, laid, dtypes)
    return made | {"given_up": GIVEN_UP, "helpers": helpers.called(own["functions"])}
