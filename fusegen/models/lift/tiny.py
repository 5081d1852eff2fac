"""A problem file with small sizes: its syntax tree with small numbers in the place of large ones.

Sizes up to `SMALL` stay: kernel sizes, strides, groups. Larger ones become small ones from `FIRST` on.
Equal sizes stay equal, different ones different, and a size keeps its remainder by `STEP`, which alignment
sees. By divisors, a size that another divides, as groups divide channels, becomes a multiple of that one's
small size, which makes it larger.
"""

import ast
import copy
import math
import re
from collections.abc import Callable

SMALL, FIRST, STEP = 8, 12, 4
SIZES = ("get_inputs", "get_init_inputs")  # functions that hold sizes, too
STAY = re.compile(r"kernel|stride|padding|dilation|groups", re.IGNORECASE)  # names whose numbers stay


Small = Callable[[set[int], set[int]], dict[int, int]]  # from large sizes and all numbers beside them


def by_place(sizes: set[int], numbers: set[int]) -> dict[int, int]:
    """Return small sizes by the order of the large ones."""
    return {size: FIRST + STEP * place + size % STEP for place, size in enumerate(sorted(sizes))}


def by_divisors(sizes: set[int], numbers: set[int]) -> dict[int, int]:
    """Return small sizes that are multiples where the large ones are, for numbers in places of sizes."""
    small: dict[int, int] = {}
    for size in sorted(sizes):
        divisors = (number for number in numbers if 1 < number < size and size % number == 0)
        common = math.lcm(*(small.get(number, number) for number in divisors))
        alike = (number for number in range(FIRST, size) if number % STEP == size % STEP)
        fitting = (number for number in alike if not number % common and number not in small.values())
        small[size] = next(fitting, size)
    return small


def shrunk(tree: ast.Module, small: Small = by_place) -> ast.Module:
    """A problem with small sizes: those in module-level assignments and in the two functions of inputs.

    ``Model`` is left as it is: its sizes are arguments of the constructor. A number in a module-level
    assignment to a name that `STAY` finds stays.
    """
    nodes = [node for place in tree.body if _may_hold_sizes(place) for node in ast.walk(place)]
    numbers = {number for node in nodes if (number := _number(node)) is not None}
    shrink = _Shrink(small(sizes_of(tree), numbers))
    own = copy.deepcopy(tree)  # the tree serves other sizes, too
    body = [shrink.visit(node) if _holds_sizes(node) else node for node in own.body]
    return ast.fix_missing_locations(ast.Module(body, tree.type_ignores))


def sizes_of(tree: ast.Module) -> set[int]:
    """Return the large sizes of a problem."""
    places = (node for place in tree.body if _holds_sizes(place) for node in ast.walk(place))
    return {size for node in places if (size := _size(node)) is not None}


class _Shrink(ast.NodeTransformer):
    """Puts small sizes in the place of large ones."""

    def __init__(self, small: dict[int, int]) -> None:
        self.small = small

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        size = _size(node)
        return node if size is None else ast.copy_location(ast.Constant(self.small[size]), node)


def _may_hold_sizes(node: ast.stmt) -> bool:
    is_function = isinstance(node, ast.FunctionDef) and node.name in SIZES
    return is_function or isinstance(node, ast.Assign | ast.AnnAssign)


def _holds_sizes(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return _may_hold_sizes(node)
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return not any(STAY.search(ast.unparse(target)) for target in targets)


def _size(node: ast.AST) -> int | None:
    """Return the whole number that a node is, if it is a large one."""
    number = _number(node)
    return number if number is not None and number > SMALL else None


def _number(node: ast.AST) -> int | None:
    """Return the whole number that a node is."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
