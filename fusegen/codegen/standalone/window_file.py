"""The text of a standalone file of a pooling, from that of a module of windows."""

import ast
import re
from collections.abc import Collection
from typing import Any

from fusegen.codegen.standalone import known, text
from fusegen.codegen.standalone.items import Item
from fusegen.codegen.standalone.phase_items import Loops, Types
from fusegen.codegen.standalone.reading import Module

KNOWN = known.Known(
    "Windows",
    keywords="window numbers front",
    methods="of along linear without_bias",
    own="RANK FRONT made tensors results of_dims windows sizes_of shapes_of laid own views window alike",
)
DECISIONS = re.compile(  # of the runtime's kernels: the windows, and how they hold elements
    r"  using (?:KERNEL|STRIDE|PADDING|DILATION) = Sizes<[^;]*>;\n|  FUSEGEN_DIVISORS\n"
    r"|  static constexpr \w+ (?:EXACT|EXACT_TENSOR|ADAPTIVE|COUNTS_PADDING|DIVISOR) = \w+;\n"
)
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
    read = KNOWN.read(module)
    if read is None or "struct Backward " not in module or not KNOWN.leaves(_numbers(read)):
        return False
    return _tensors(read, "forward") == _tensors(read, "backward")[1:]


def context(module_text: str, dtypes: list[str]) -> dict[str, Any]:
    """Return what the templates of a file name, from a module's text beside a runtime, for some dtypes."""
    module = Module(DECISIONS.sub("", known.with_headers_of_files(module_text)))
    tensors = _tensors(module, "forward")
    scalars = [name for name, kind in module.signature("forward").items() if kind == "float"]
    [front] = {int(bits) for bits in FRONT.findall(module.text)}
    facts = _window(module) | {
        "templates": ("windows/kernels",),
        "name": module.name,
        "types": text.types_of(module, dtypes),
        "tensors": 2 * len(tensors) + 1,
        "scalars": len(scalars),
        "front": front,
        "averages": "AVERAGES = true;" in module.text,
        "first_front": (front & -front).bit_length() - 1,
        "of_scalars": ", ".join(scalars),
    }
    arguments = tensors, [*scalars, *_numbers(module)]
    return Loops("windows", _statements, GIVEN_UP).file(module, facts, arguments, dtypes)


def _tensors(module: Module, kernel: str) -> list[str]:
    return [name for name, kind in module.signature(kernel).items() if kind == "Tensor"]


def _numbers(module: Module) -> list[str]:
    """Return the names of the numbers of windows that are the constructor's."""
    window = module.given["window"]
    return [a.arg for a in window.args.args] if isinstance(window, ast.Lambda) else []


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
