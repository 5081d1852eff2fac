"""The types that a module's kernels are compiled for, and the functions that they call."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fusegen.codegen.standalone.calls import Calls
from fusegen.codegen.standalone.functions import parts
from fusegen.codegen.standalone.items import Item, item
from fusegen.codegen.standalone.overloads import Overloads

MATHS = ("float", "double", "FastFloat", "PlainDouble")
FITTED = {"Table": ["double"], "PiecewiseUniform": ["float", "double"], "PiecewiseOctaves": ["double"],
          "PiecewiseSegments": ["float"]}  # fmt: skip
DEFAULT = ["Formula<float>", "Formula<float>", "Formula<double>"]
WIDTHS = (16, 32, 64)  # the bits of elements
CHIP = 90  # whose launches a file has
TABLE = re.compile(r"^constexpr (?:Prefetch)?Launch (\w+)\[\]", re.MULTILINE)
ROW = re.compile(r"\{(\d+), (\w+), (\d+), (\d+)(?:, \d+)?\}")
ROW_OF_CHIP = re.compile(r"\{\w+, (\d+), (\d+)\}")
NAMED = re.compile(r"\*BITS\d+ = (\w+)")  # the launch tables of a kernel
LAUNCHES = re.compile(r"  static constexpr const Launch [^;]*;\n")
OF_METHODS = re.compile(r"  using Methods? = .*;\n|  static constexpr double DEFAULTS\[\] = .*;\n")
BY_CURVES = re.compile(r"FUSEGEN_BY_CURVES\((.*), Curve\d+\);")
KERNEL = re.compile(r"^struct (?:Forward|Backward) ", re.MULTILINE)
STORED = {16: "half", 32: "float", 64: "double"}  # the type of an element, by its bits
METHODS = re.compile(r"using Methods = ByWidth<(.*)>;")
METHOD = re.compile(r"using Method = (.*);")
ROWS = r"(static constexpr const \w+ )[^;]*(\*BITS{} = \w+)[^;]*;"
ELEMENT = re.compile(r"FUSEGEN_ELEMENT\((.*)\)(?: \}|\n\});", re.DOTALL)
CURVE = re.compile(r"FUSEGEN_CURVE\([^,]*,[^,]*,[^,]*,[^,]*, (.*)\);", re.DOTALL)


def methods(struct: str) -> list[str]:
    """Return the methods of a kernel's type for elements of 16, 32 and 64 bits."""
    if only := METHOD.search(struct):
        return [only[1]] * len(WIDTHS)
    found = METHODS.search(struct)
    return parts(found[1]) if found else DEFAULT


def is_plain(one: Item, types: Sequence[Mapping[str, Any]]) -> bool:
    """Return True unless an item is a kernel of other methods than the formula."""
    places = {WIDTHS.index(type["bits"]) for type in types}
    return not KERNEL.search(one.text) or all(methods(one.text)[k] == DEFAULT[k] for k in places)


def rows(text: str) -> list[list[int]]:
    """Return the rows of a launch table: the chip, the KiB up to which it is taken, threads, vectors."""
    found = ROW.findall(text) if TABLE.search(text) else []
    return [
        [int(chip), 0 if kib == "ANY" else int(kib), int(threads), int(vectors)]
        for chip, kib, threads, vectors in found
    ]


def of_one_chip(one: Item) -> Item:
    """Return a launch table with the rows of one chip; other items as they are."""
    if not (found := rows(one.text)):
        return item(one.text.replace("PrefetchLaunch", "Launch"))
    newest = max(chip for chip, *_ in found if chip <= CHIP)
    own = ", ".join(
        f"{{{kib or 'INT64_MAX'}, {threads}, {vectors}}}"
        for chip, kib, threads, vectors in found
        if chip == newest
    )
    name = TABLE.search(one.text)
    assert name
    return item(f"constexpr Launch {name[1]}[] = {{{own}}};")


def vectors(one: Item) -> set[int]:
    """Return the numbers of vectors that a launch table of one chip has."""
    return {int(count) for count in re.findall(r", (\d)\}", one.text)} if TABLE.search(one.text) else set()


def launch(own: Sequence[Item]) -> tuple[int, int] | None:
    """Return the threads and vectors of every launch; None where launches differ."""
    tables = {name for one in own for name in NAMED.findall(one.text)}
    rows = {
        (int(threads), int(count))
        for one in own
        if tables & {*one.names}
        for threads, count in ROW_OF_CHIP.findall(one.text)
    }
    return rows.pop() if len(rows) == 1 else None


def of_one_launch(own: Iterable[Item]) -> list[Item]:
    """Return the items of a module without launch tables, and kernels that name none."""
    return [item(LAUNCHES.sub("", one.text)) for one in own if not TABLE.search(one.text)]


def of_formulas(own: Iterable[Item]) -> list[Item]:
    """Return the items of a module of formulas only, without what methods alone read."""
    return [item(OF_METHODS.sub("", one.text)) for one in own]


def of_one_type(own: Iterable[Item], types: Sequence[Mapping[str, Any]]) -> list[Item]:
    """Return the items of a module with the method and the launches of one type of elements."""
    [only] = types
    rows = re.compile(ROWS.format(only["bits"]))
    made = []
    for one in own:
        method = methods(one.text)[WIDTHS.index(only["bits"])]
        text = METHODS.sub(f"using Method = {method};", one.text)
        made.append(item(rows.sub(r"\1\2;", text)))
    return made


def called(
    own: Iterable[Item],  # the items of the module
    items: Iterable[Item],  # those that it may need
    device: str,  # its name
    types: Iterable[Mapping[str, Any]],  # of elements
) -> Calls:
    """Return the functions that the kernels of a device call."""
    own = [*own]
    found = Calls(Overloads([*own, *items], device))
    for one in own:
        if curve := CURVE.search(one.text):
            found.follow(one, f"{curve[1]};", {"u ": "double", "M": "double", "out ": "array<double>"})
        if curves := BY_CURVES.search(one.text):
            found.follow(one, f"{curves[1]};", {"in ": "array<float>", "out ": "array<float>"})
        if element := ELEMENT.search(one.text):
            for bits in {type["bits"] for type in types}:
                for math in maths(methods(one.text)[WIDTHS.index(bits)]):
                    places = {"in ": f"array<{math}>", "out ": f"array<{math}>", "p ": f"params<{math}>"}
                    found.follow(one, f"{element[1]};", {**places, "T": STORED[bits], "M": math})
    return found


def maths(method: str) -> list[str]:
    """Return the types that a method computes in."""
    words = re.findall(r"\w+", method)
    return [*dict.fromkeys(kind for word in words for kind in FITTED.get(word, [word]) if kind in MATHS)]
