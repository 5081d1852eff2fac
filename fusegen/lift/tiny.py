"""A problem file with small sizes: its syntax tree with small numbers in the place of large ones.

Sizes up to `SMALL` stay: kernel sizes, strides, groups. Larger ones become small ones from `FIRST` on.
Equal sizes stay equal, different ones different, and a size keeps its remainder by `STEP`, which alignment
sees.
"""

from __future__ import annotations

import ast
import re

SMALL, FIRST, STEP = 8, 12, 4
SIZES = ("get_inputs", "get_init_inputs")  # functions that hold sizes, too
STAY = re.compile(r"kernel|stride|padding|dilation|groups", re.IGNORECASE)  # names whose numbers stay


def shrunk(tree: ast.Module) -> ast.Module:
    """A problem with small sizes: those in module-level assignments and in the two functions of inputs.

    ``Model`` is left as it is: its sizes are arguments of the constructor. A number in a module-level
    assignment to a name that `STAY` finds stays.
    """
    places = [node for node in tree.body if _holds_sizes(node)]
    sizes = (_size(node) for place in places for node in ast.walk(place))
    found = {size for size in sizes if size is not None}
    small = {size: FIRST + STEP * place + size % STEP for place, size in enumerate(sorted(found))}
    shrink = _Shrink(small)
    body = [shrink.visit(node) if node in places else node for node in tree.body]
    return ast.fix_missing_locations(ast.Module(body, tree.type_ignores))


class _Shrink(ast.NodeTransformer):
    """Puts small sizes in the place of large ones."""

    def __init__(self, small: dict[int, int]) -> None:
        self.small = small

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        size = _size(node)
        return node if size is None else ast.copy_location(ast.Constant(self.small[size]), node)


def _holds_sizes(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name in SIZES
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return not any(STAY.search(ast.unparse(target)) for target in targets)


def _size(node: ast.AST) -> int | None:
    """The whole number that a node is, if it is a large one."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > SMALL else None
