"""The text of a standalone file of a loss of whole tensors, from that of a module of parts."""

import re
from typing import Any

from fusegen.codegen.standalone import row_file, text
from fusegen.codegen.standalone.known import Known
from fusegen.codegen.standalone.phase_items import Loops
from fusegen.codegen.standalone.reading import Module

KNOWN = Known(
    "Parts",
    keywords="over reduction features",
    methods="",
    own="functools call made shaped tensors shape wide values results divisor length_of laid by_operations "
    "reduction alike",
)
SHORTEST, MOST = 4096, 16384  # elements of a part, and parts, as fusegen/runtime/parts.py has them
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
    read = KNOWN.read(module) if MEAN.search(module) else None
    if read is None:
        return False
    count = [*read.signature("forward").values()].count("Tensor")
    return read.counts().get("Backward") == (count + 1, count)


def context(module_text: str, dtypes: list[str]) -> dict[str, Any]:
    """Return what the templates of a file name, from a module's text beside a runtime, for some dtypes."""
    for pattern in (MEAN, OF_PART, LEFT_OUT, row_file.SUMS):
        module_text = pattern.sub("", module_text)
    module = Module(row_file.prepared(module_text))
    forward = module.signature("forward")
    tensors = [name for name, kind in forward.items() if kind == "Tensor"]
    scalars = [name for name, kind in forward.items() if kind == "float"]
    types = text.types_of(module, dtypes)
    facts = {
        "templates": ("parts/kernels",),
        "name": module.name,
        "types": types,
        "tensors": 2 * len(tensors) + 1,
        "scalars": len(scalars),
        "of_scalars": "".join(f", {name}" for name in scalars),
        "shortest": SHORTEST,
        "most": MOST,
    }
    loops = Loops("parts", row_file.statements(types), GIVEN_UP)
    return loops.file(module, facts, (tensors, scalars), dtypes)
