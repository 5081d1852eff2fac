"""The text of a standalone file of a pooling, from that of a module of windows."""

import ast
import re
from collections.abc import Collection
from typing import Any

from fusegen.codegen.standalone import file_parts, helpers, text
from fusegen.codegen.standalone.items import Item
from fusegen.codegen.standalone.phase_items import Loops, Types
from fusegen.codegen.standalone.reading import Module
from fusegen.core.dtypes import ELEMENTS

KEYWORDS = {  # of the registration of a module
    *("interface", "eager", "eager_gradient", "forward", "backward", "sources"),
    *("window", "numbers", "front"),
}
METHODS = {  # of KERNELS
    *("function", "scalar", "with_options", "write", "run", "of"),
    *("along", "linear", "without_bias"),
}
OWN = frozenset(  # names of a file, which a module's functions and tensors must not have
    "torch ctypes nn Tensor Call Kernels LIBRARY TYPES NAME RANK FRONT ctx made tensors run results "
    "operator kernels of_dims windows sizes_of shapes_of laid own views window plain alike known "
    "eager transformed".split()
)
DECISIONS = re.compile(  # of the runtime's kernels: the windows, and how they hold elements
    r"  using (?:KERNEL|STRIDE|PADDING|DILATION) = Sizes<[^;]*>;\n|  FUSEGEN_DIVISORS\n"
    r"|  static constexpr \w+ (?:EXACT|EXACT_TENSOR|ADAPTIVE|COUNTS_PADDING|DIVISOR) = \w+;\n"
)
HEADERS = {'"cuda/windows.cuh"': '"cuda/math.cuh"', '"cpu/windows.h"': '"cpu/math.h"'}
FRONT = re.compile(r"FRONT = (\d+);")
NUMBERS = (  # of windows
    *("kernel_size", "stride", "padding", "dilation"),
    *("ceil_mode", "count_include_pad", "divisor_override"),
)
MACROS = ("FRONT", "BEHIND", "FRONT_GRADIENT", "BEHIND_GRADIENT")
GIVEN_UP = (
    "Given up: windows that share elements in registers, channels_last, in place, out=, autocast, "
    "kernels in torch.func and forward mode."
)


def is_light(module: str) -> bool:
    """Return True if a module of windows has a file of its own kernels, not of the runtime."""
    if re.findall(r"^\w*KERNELS = (\w+)\(", module, re.MULTILINE) != ["Windows"]:
        return False
    read, called = Module(module), set(re.findall(r"\bKERNELS\.(\w+)", module))
    names = {read.name, *read.signature("forward"), *_numbers(read)}
    is_whole = "struct Backward " in module and _tensors(read, "forward") == _tensors(read, "backward")[1:]
    return is_whole and called <= METHODS and set(read.given) <= KEYWORDS and OWN.isdisjoint(names)


def context(module_text: str, dtypes: Collection[str]) -> dict[str, Any]:
    """Return what the templates of a file name, from a module's text beside a runtime, for some dtypes."""
    for header, other in HEADERS.items():
        module_text = module_text.replace(header, other)
    module = Module(DECISIONS.sub("", module_text))
    return _context(module, [d for d in ELEMENTS if d in dtypes]) | {"templates": ("windows/kernels",)}


def _tensors(module: Module, kernel: str) -> list[str]:
    return [name for name, kind in module.signature(kernel).items() if kind == "Tensor"]


def _numbers(module: Module) -> list[str]:
    """Return the names of the numbers of windows that are the constructor's."""
    window = module.given["window"]
    return [a.arg for a in window.args.args] if isinstance(window, ast.Lambda) else []


def _context(module: Module, dtypes: list[str]) -> dict[str, Any]:
    tensors = _tensors(module, "forward")
    scalars = [name for name, kind in module.signature("forward").items() if kind == "float"]
    of_window, types = _window(module), text.types_of(module, dtypes)
    [front] = {int(bits) for bits in FRONT.findall(module.text)}
    context = of_window | {
        "name": module.name,
        "types": types,
        "tensors": 2 * len(tensors) + 1,
        "scalars": len(scalars),
        "front": front,
        "averages": "AVERAGES = true;" in module.text,
        "first_front": (front & -front).bit_length() - 1,
        "of_scalars": ", ".join(scalars),
    }
    laid = Loops("windows", _statements).laid(module, context)
    own = text.python_of(module, tensors, [*scalars, *_numbers(module)])
    made = own | context | laid | file_parts.head(module, laid, dtypes)
    return made | {"given_up": GIVEN_UP, "helpers": helpers.called(own["functions"])}


def _window(module: Module) -> dict[str, Any]:
    """Return what templates name of the windows."""
    window = module.given["window"]
    if isinstance(window, ast.Lambda):
        call = window.body
        assert isinstance(call, ast.Call)
        given = {w.arg: ast.unparse(w.value) for w in call.keywords if w.arg}
        rank = int(given.pop("rank"))
    else:
        numbers = ast.literal_eval(window)
        keys = NUMBERS if len(numbers) > 1 else ("output_size",)
        given = {key: str(value) for key, value in zip(keys, numbers, strict=False)}
        rank = len(numbers[0])
    return {
        "rank": rank,
        "adaptive": "output_size" in given,
        "counts": bool({"count_include_pad", "divisor_override"} & {*given}),
        "window": f"windows({', '.join(f'{key}={value}' for key, value in given.items())})",
    }


def _statements(own: Collection[Item]) -> dict[str, list[Types]]:
    """Return the types of names in what is computed in front of a pooling and behind it."""
    arrays = dict.fromkeys(("t ", "p ", "out "), "array<double>")
    numbers = dict.fromkeys(("grad ", "pooled ", "length "), "double")
    return {macro: [arrays | numbers | {"M": "double", "T": "double"}] for macro in MACROS}
