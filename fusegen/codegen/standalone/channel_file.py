"""The text of a standalone file of channels with the statistics of a batch, from that of a module."""

import ast
from typing import Any

from fusegen.codegen.standalone import row_file, text
from fusegen.codegen.standalone.known import Known
from fusegen.codegen.standalone.phase_items import Loops
from fusegen.codegen.standalone.reading import Module

KNOWN = Known(
    "Channels",
    keywords="channels",
    methods="along linear layer channel_sum",
    own="made tensors results numbers scalars of_batch normalised layer channel_sum by_operations views",
)
GIVEN_UP = (
    "Given up: blocks that share a channel, the order of sums, in place, out=, autocast, "
    "kernels in torch.func and forward mode."
)


def is_light(module: str) -> bool:
    """Return True if a module of channels has a file of its own kernels, not of the runtime."""
    return KNOWN.read(module) is not None and "struct Backward " in module


def context(module_text: str, dtypes: list[str]) -> dict[str, Any]:
    """Return what the templates of a file name, from a module's text beside a runtime, for some dtypes."""
    module = Module(row_file.prepared(module_text))
    forward = module.signature("forward")
    tensors = [name for name, kind in forward.items() if kind == "Tensor" and name != "moments"]
    scalars = [name for name, kind in forward.items() if kind == "float" and name != "batch"]
    numbers = int(ast.literal_eval(module.given["channels"]))
    elements = len(tensors) - numbers
    types = text.types_of(module, dtypes)
    flags = dict.fromkeys(("split", "columns", "runs", "batch"), True)
    flags |= dict.fromkeys(("picks", "sums", "runs_once", "groups", "wide"), False)
    facts = flags | {
        "templates": ("channels/kernels",),
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
    loops = Loops("rows", row_file.statements(types), GIVEN_UP)
    made = loops.file(module, facts, (tensors, scalars), dtypes)
    return made | {"eager": made["eager"].replace("KERNELS.", "")}
