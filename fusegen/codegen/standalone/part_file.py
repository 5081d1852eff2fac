"""The text of a standalone file of a loss of whole tensors, from that of a module of parts."""

import re
from collections.abc import Collection
from typing import Any

from fusegen.codegen.standalone import file_parts, row_file, text
from fusegen.codegen.standalone.phase_items import Loops
from fusegen.codegen.standalone.reading import Module
from fusegen.core.dtypes import ELEMENTS

KEYWORDS = {  # of the registration of a module
    *("interface", "eager", "eager_gradient", "forward", "backward", "sources"),
    *("over", "reduction", "features"),
}
SHORTEST, MOST = 4096, 16384  # elements of a part, and parts, as fusegen/runtime/parts.py has them
METHODS = {"function", "scalar", "with_options", "write", "run"}  # of KERNELS
OWN = frozenset(  # names of a file, which a module's functions and tensors must not have
    "torch ctypes functools nn Tensor Call Kernels LIBRARY TYPES NAME ctx call made shaped tensors shape "
    "wide values results run operator kernels divisor length_of laid by_operations reduction plain alike "
    "known eager transformed".split()
)
HEADERS = {'"cuda/parts.cuh"': '"cuda/math.cuh"', '"cpu/parts.h"': '"cpu/math.h"'}
MEAN = re.compile(  # of a part: a file adds the parts, and divides their sum
    r"HOST_DEVICE double \w+_row\(double row_sum, double row_share\) \{\n"
    r"  return row_sum \* row_share;\n\}\n"
)
OF_PART = re.compile(row_file.STATEMENTS.pattern + "\n", re.MULTILINE)
LEFT_OUT = re.compile(
    r"struct Forward2 : Stores<ForwardValues, READS<>, 1> \{\n.*\n\};\n"
    r"|(?<=Forward1), Forward2(?=>)|, row_sum, of_row(?=;)"
)
GIVEN_UP = (
    "Given up: the order of sums, floats for 16 bits, out=, autocast, "
    "kernels in torch.func and forward mode."
)


def is_light(module: str) -> bool:
    """Return True if a module of parts has a file of its own kernels, not of the runtime."""
    if row_file.REGISTERED.findall(module) != ["Parts"] or not MEAN.search(module):
        return False
    read, called = Module(module), {*row_file.CALLED.findall(module)}
    names = [name for name, kind in read.signature("forward").items() if kind == "Tensor"]
    counts = read.counts()
    is_whole = counts.get("Backward") == (len(names) + 1, len(names))
    is_known = called <= METHODS and set(read.given) <= KEYWORDS
    return is_whole and is_known and OWN.isdisjoint({read.name, *read.signature("forward")})


def context(module_text: str, dtypes: Collection[str]) -> dict[str, Any]:
    """Return what the templates of a file name, from a module's text beside a runtime, for some dtypes."""
    for header, other in HEADERS.items():
        module_text = module_text.replace(header, other)
    for pattern in (MEAN, OF_PART, LEFT_OUT, row_file.SUMS):
        module_text = pattern.sub("", module_text)
    module = Module(row_file.prepared(module_text))
    return _context(module, [d for d in ELEMENTS if d in dtypes]) | {"templates": ("parts/kernels",)}


def _context(module: Module, dtypes: list[str]) -> dict[str, Any]:
    forward = module.signature("forward")
    tensors = [name for name, kind in forward.items() if kind == "Tensor"]
    scalars = [name for name, kind in forward.items() if kind == "float"]
    types = text.types_of(module, dtypes)
    context = {
        "name": module.name,
        "types": types,
        "tensors": 2 * len(tensors) + 1,
        "scalars": len(scalars),
        "of_scalars": "".join(f", {name}" for name in scalars),
        "shortest": SHORTEST,
        "most": MOST,
    }
    laid = Loops("parts", row_file.statements(types)).laid(module, context)
    own = text.python_of(module, tensors, scalars)
    return own | context | laid | file_parts.head(module, laid, dtypes) | {"given_up": GIVEN_UP}
