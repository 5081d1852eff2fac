"""A thin convolution in a file of elements: one kernel on the tensor cores with what comes behind it."""

import re
from collections.abc import Sequence
from typing import Any

from fusegen.codegen.standalone import instances
from fusegen.codegen.standalone.reading import Module

INCLUDED = '#include "cuda/thin_launch.cuh"\n'
FIRST = '\nCUDA_SOURCE = r"""\n'
HEADERS = f'#include "cuda/thin_convolution.cuh"\n{INCLUDED}'
ROW = re.compile(
    r"^constexpr fusegen::Launch THIN\[\] = .*\{\d+, fusegen::ANY, (\d+), (\d+)\}, \{\}\};$", re.MULTILINE
)
CALLED = re.compile(
    r" +out = KERNELS\.convolved\((?:[^()]|\([^()]*\))*\)\n +if out is not None:.*\n +return out\n"
)
FORMULA = re.compile(r"Formula<(\w+)>")
GIVEN_UP = "Hopper's wgmma, convolutions in torch.compile"
WORTH = {  # what one kernel takes, and where it is faster: fusegen/runtime/thin.py and thin_operator.py
    "most_channels": 16,
    "most_kernel": 7,
    "most_terms": 200,
    "least_columns": 32,
    "least_elements": 2**22,
    "most_narrow": 12,
    "enough_terms": 64,
}


def prepared(text: str, bits: Sequence[int]) -> str:
    """Return a module's text with the headers of its convolution, or without that where no dtype has it."""
    if INCLUDED not in text:
        return text
    if not ROW.search(text) or not _maths(Module(text), bits):
        return CALLED.sub("", text)
    return text.replace(FIRST, FIRST + HEADERS, 1)


def facts(module: Module, types: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what templates name of a convolution; nothing of a module without one."""
    row = ROW.search(module.text)
    if not row or not CALLED.search(module.text):
        return {}
    maths = _maths(module, [type["bits"] for type in types])
    own = [type | {"math": maths[type["bits"]]} for type in types if type["bits"] in maths]
    return WORTH | {"threads": row[1], "groups": row[2], "types": own}


def _maths(module: Module, bits: Sequence[int]) -> dict[int, str]:
    """Return the types that formulas compute in, by the bits of elements that the kernel takes."""
    forward = next(item for item in module.source("cuda").own if "Forward" in item.names)
    methods = dict(zip(instances.WIDTHS, instances.methods(forward.text), strict=True))
    found = {width: FORMULA.fullmatch(methods[width]) for width in bits if width <= 32}
    return {width: math[1] for width, math in found.items() if math}
