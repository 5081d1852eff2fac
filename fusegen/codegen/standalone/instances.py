"""The types that a module's kernels are compiled for, and the functions that they call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from fusegen.codegen.standalone.calls import Calls
from fusegen.codegen.standalone.items import Item
from fusegen.codegen.standalone.overloads import Overloads

MATHS = ("float", "double", "FastFloat", "PlainDouble")
FITTED = {"Table": ["double"], "PiecewiseUniform": ["float", "double"], "PiecewiseOctaves": ["double"],
          "PiecewiseSegments": ["float"]}  # fmt: skip
DEFAULT = ["Formula<float>", "Formula<float>", "Formula<double>"]
STORED = {16: "half", 32: "float", 64: "double"}  # the type of an element, by its bits
METHODS = re.compile(r"using Methods = ByWidth<(.*)>;")
ELEMENT = re.compile(r"FUSEGEN_ELEMENT\((.*)\)(?: \}|\n\});", re.DOTALL)
CURVE = re.compile(r"FUSEGEN_CURVE\([^,]*,[^,]*,[^,]*,[^,]*, (.*)\)", re.DOTALL)


def methods(struct: str) -> list[str]:
    """Return the methods of a kernel's type for elements of 16, 32 and 64 bits."""
    found = METHODS.search(struct)
    if not found:
        return DEFAULT
    depth, parts = 0, [""]
    for char in found[1]:
        depth += {"<": 1, ">": -1}.get(char, 0)
        parts = [*parts, ""] if char == "," and depth == 0 else [*parts[:-1], parts[-1] + char]
    return [part.strip() for part in parts]


def called(own: Iterable[Item], items: Iterable[Item], device: str, types: Iterable[Mapping[str, Any]]) -> Calls:
    """Return the functions that the kernels of a device call.

    Args:
        own: the items of the module.
        items: those that it may need.
        device: its name.
        types: of elements.
    """
    own = [*own]
    found = Calls(Overloads([*own, *items], device == "cpu"))
    for item in own:
        if curve := CURVE.search(item.text):
            found.follow(item, f"{curve[1]};", {"u ": "double", "M": "double", "out ": "array<double>"})
        if element := ELEMENT.search(item.text):
            for bits in {type["bits"] for type in types}:
                for math in maths(methods(item.text)[(16, 32, 64).index(bits)]):
                    places = {"in ": f"array<{math}>", "out ": f"array<{math}>", "p ": f"params<{math}>"}
                    found.follow(item, f"{element[1]};", {**places, "T": STORED[bits], "M": math})
    return found


def maths(method: str) -> list[str]:
    """Return the types that a method computes in."""
    words = re.findall(r"\w+", method)
    return [*dict.fromkeys(kind for word in words for kind in FITTED.get(word, [word]) if kind in MATHS)]
