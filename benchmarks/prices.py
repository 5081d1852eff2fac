"""The price of the next kernel: how many places of the compiler know a device or a form.

    python -m benchmarks.prices            # a row for each price, beside its goal

Prices are counted in the text of `fusegen/`, the goals are those that the design was made for.
"""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "fusegen"
STAGES = ("schedule", "compiler", "codegen")  # rooms in which forms other than the plain loop are named
ROWS = (
    "bitmask_gradient",
    "thin_convolution",
    "forms",
)  # modules that are about one form, or the table of all
BESIDE = ("runtime", "generated")  # copied beside modules, and installed
DEVICES = ("CUDA", "CPU")
# a form in a name: not "within", nor the masks of numpy and of inputs
FORM = re.compile(r"(?<![a-zA-Z])(thin|bitmask)(?![a-z])|Thin|Bitmask|MaskText|THIN|BITMASK")


@dataclass(frozen=True)
class Price:
    """A row of the report."""

    name: str  # what is counted
    goal: int  # the most, or for the median the least
    # the function of the parsed modules, by their path below `fusegen/`
    count: Callable[[Mapping[Path, ast.Module]], float]


def parsed() -> dict[Path, ast.Module]:
    """Return the modules of the compiler, by their path below `fusegen/`."""
    paths = (path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in BESIDE)
    return {
        path.relative_to(PACKAGE): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(paths)
    }


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield the rooms that a module imports, also inside its functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fusegen."):
            yield str(node.module).split(".")[1]
        elif isinstance(node, ast.ImportFrom) and node.module == "fusegen":
            yield from (alias.name for alias in node.names)


def in_circles(modules: Mapping[Path, ast.Module]) -> int:
    """Return the number of rooms that import themselves by way of others."""
    below: dict[str, set[str]] = {path.parts[0]: set() for path in modules if len(path.parts) > 1}
    for path, tree in modules.items():
        if path.parts[0] in below:
            below[path.parts[0]] |= ({*imports(tree)} & below.keys()) - {path.parts[0]}
    while free := {room for room, others in below.items() if not others & below.keys()}:
        below = {room: others for room, others in below.items() if room not in free}
    return len(below)


def shared_names(modules: Mapping[Path, ast.Module]) -> int:
    """Return the number of modules whose base name another one has."""
    names = Counter(path.name for path in modules if path.name != "__init__.py")
    return sum(count for count in names.values() if count > 1)


def device_tests(modules: Mapping[Path, ast.Module]) -> int:
    """Return the number of comparisons with one device, and of keys that are one."""
    compared = (
        node for tree in modules.values() for node in ast.walk(tree) if isinstance(node, ast.Compare)
    )
    return sum(any(is_device(side) for side in (each.left, *each.comparators)) for each in compared)


def is_device(node: ast.AST) -> bool:
    """Return True if an expression is `Device.CUDA` or `Device.CPU`."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr in DEVICES
        and isinstance(node.value, ast.Name)
        and node.value.id == "Device"
    )


def named_forms(modules: Mapping[Path, ast.Module]) -> int:
    """Return how often stages name the bitmask or the thin convolution outside their modules."""
    found = 0
    for path, tree in modules.items():
        if path.parts[0] in STAGES and path.stem not in ROWS:
            names = (
                getattr(node, "attr", getattr(node, "id", getattr(node, "arg", "")))
                for node in ast.walk(tree)
            )
            found += sum(bool(FORM.search(str(name))) for name in names)
    return found


def lines(modules: Mapping[Path, ast.Module]) -> list[int]:
    """Return the lines of each module."""
    return [len((PACKAGE / path).read_text(encoding="utf-8").splitlines()) for path in modules]


PRICES = (
    Price("files at the top", 2, lambda of: sum(len(path.parts) == 1 for path in of)),
    Price("rooms in circles", 0, in_circles),
    Price("files that share a base name", 40, shared_names),
    Price("comparisons with a device", 5, device_tests),
    Price("uses of a form outside its row", 10, named_forms),
    Price("lines of Python", 36_000, lambda of: sum(lines(of))),
    Price("lines of the median file, at least", 120, lambda of: statistics.median(lines(of))),
)


def main() -> None:
    """Print each price beside its goal."""
    modules = parsed()
    print("| price | now | goal |\n|---|---|---|")
    for price in PRICES:
        print(f"| {price.name} | {price.count(modules):,.0f} | {price.goal:,} |")


if __name__ == "__main__":
    main()
