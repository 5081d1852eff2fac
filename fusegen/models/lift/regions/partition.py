"""The maximal pointwise regions of a graph.

A region has one result, and every other value in it is read in the region only. So no path leaves a region
and comes back, and its kernel can run where the result is computed. All its values have the shape of the
result, or an eighth of its elements or fewer: such a value is computed again for each element that it is
broadcast to. A region may reduce its last dimension, a row, where the table of operators says so.
"""

import ast
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fusegen.models.lift.regions.pointwise import LABEL, Pointwise, is_mask, pointwise
from fusegen.models.reader.aten_calls import hint, value_of
from fusegen.models.reader.aten_table import ROWS, Rows
from fusegen.models.reader.formula import Unfit

MOST_OPERATIONS, MOST_TENSORS = 32, 8
SMALLER = 8  # times fewer elements
SEVERAL = "its tensors are of several dtypes or devices"
SLOWER = "no kernel of rows is known to be faster"


@dataclass(frozen=True)
class Region:
    """A pointwise region.

    Attributes:
        parts: its operations, in order; the last is the result.
        inputs: the nodes outside that it reads. The first has the shape of the result if one has, and is
            no mask: that from which eager's result has its layout in memory, unless it is a parameter. The
            others are in the order of reading.
        others: results beside the last.
    """

    parts: tuple[Pointwise, ...]
    inputs: tuple[fx.Node, ...]
    others: tuple[fx.Node, ...] = ()

    @property
    def results(self) -> tuple[fx.Node, ...]:
        """The nodes whose values the region computes for others."""
        return self.result, *self.others

    @property
    def result(self) -> fx.Node:
        """The node whose value the region computes."""
        return self.parts[-1].node

    @property
    def nodes(self) -> tuple[fx.Node, ...]:
        """The nodes of the region, in order."""
        return tuple(part.node for part in self.parts)

    @property
    def is_of_rows(self) -> bool:
        """True if it reduces its last dimension."""
        return any(part.is_of_rows for part in self.parts)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the numbers that it reads, each once, in order."""
        names = (
            each.id for part in self.parts for each in ast.walk(part.body) if isinstance(each, ast.Name)
        )
        return tuple(dict.fromkeys(name[len(LABEL) :] for name in names if name.startswith(LABEL)))


@dataclass(frozen=True)
class Partition:
    """The regions of a graph, and why other nodes are in none."""

    regions: tuple[Region, ...]  # in the order of their results
    # of each call that is no pointwise operation, a clause
    reasons: Mapping[fx.Node, str] = field(default_factory=dict)


def partition(
    graph: fx.Graph,
    rows: Rows = ROWS,
    is_faster: Callable[[Region], bool] = lambda _: True,
    most_results: int = 1,
) -> Partition:
    """Return the maximal pointwise regions of a graph with example values, of rows where that is faster.

    Args:
        graph: it.
        rows: the table of operators.
        is_faster: tells if a region of rows has a kernel that is faster.
        most_results: of a region of rows.
    """
    known: dict[fx.Node, Pointwise] = {}
    reasons: dict[fx.Node, str] = {}
    for node in graph.nodes:
        if node.op.startswith("call_"):
            try:
                known[node] = pointwise(node, rows)
            except Unfit as error:
                reasons[node] = str(error)
    while True:
        regions = tuple(_region(parts) for parts in _grown(graph, known, most_results))
        apart = {node: why for each in regions for node, why in _apart(each, is_faster)}
        if not apart:
            return Partition(regions, reasons)
        known = {node: part for node, part in known.items() if node not in apart}
        reasons |= apart


def _apart(of: Region, is_faster: Callable[[Region], bool]) -> Iterator[tuple[fx.Node, str]]:
    """Yield the operations without which the rest of a region may be one or several, and why."""
    tensors = [value_of(each) for each in (*of.inputs, of.result) if not is_mask(each)]
    if len({each.dtype for each in tensors}) > 1:
        yield from ((part.node, SEVERAL) for part in of.parts if part.is_cast)
    elif of.is_of_rows and not is_faster(of):
        yield from ((part.node, SLOWER) for part in of.parts if part.is_of_rows)


def _grown(
    graph: fx.Graph, known: Mapping[fx.Node, Pointwise], most_results: int
) -> list[tuple[Pointwise, ...]]:
    """Return the operations of each region: from its result back, what only the region reads.

    What others read behind its result may be another result of a region of rows.
    """
    order = {node: place for place, node in enumerate(graph.nodes)}
    root_of: dict[fx.Node, fx.Node] = {}
    members: dict[fx.Node | None, list[Pointwise]] = {}
    others = set[fx.Node | None]()  # the regions that have another result
    for node in reversed(graph.nodes):
        part = known.get(node)
        if part is None or not node.users:
            continue
        roots = {root_of.get(user) for user in node.users}
        several = len(roots) > 1
        root = _first(node, root_of, order) if several else roots.pop()
        if several and (root in others or most_results < 2 or not _is_result(part, members.get(root, []))):
            root = None
        if root is not None and _joins(part, members[root]):
            root_of[node] = root
            members[root].append(part)
            others |= {root} if several else set()
        elif part.is_value and not is_mask(node):
            root_of[node] = node
            members[node] = [part]
    return [tuple(reversed(parts)) for parts in reversed(members.values())]


def _first(
    node: fx.Node, root_of: Mapping[fx.Node, fx.Node], order: Mapping[fx.Node, int]
) -> fx.Node | None:
    """Return the result of the first region that reads a node, if all other readers are behind it."""
    roots = [root_of[user] for user in node.users if user in root_of]
    first = min(roots, key=order.__getitem__, default=None)
    others = [user for user in node.users if root_of.get(user) is not first]
    return first if first and all(order[user] > order[first] for user in others) else None


def _is_result(part: Pointwise, others: list[Pointwise]) -> bool:
    """Tell if a value may be another result of a region: one of rows, of its shape and dtype."""
    if not part.is_value or is_mask(part.node) or not any(each.is_of_rows for each in others):
        return False
    own, result = value_of(part.node), value_of(others[0].node)
    return same_shape(own, result) and bool(own.dtype == result.dtype)


def _joins(part: Pointwise, others: list[Pointwise]) -> bool:
    """Return True if an operation may be one of a region's."""
    own, result = value_of(part.node), value_of(others[0].node)
    if len(others) >= MOST_OPERATIONS or own.device != result.device:
        return False
    if not same_shape(own, result) and SMALLER * _elements(own) > _elements(result):
        return False
    if part.is_of_rows and not any(same_shape(value_of(each), result) for each in part.reads):
        return False
    return len(_read([part, *reversed(others)])) <= MOST_TENSORS


def _elements(of: Tensor) -> int:
    return math.prod(map(hint, of.shape))


def same_shape(one: Tensor, other: Tensor) -> bool:
    """Return True if two tensors have one shape for every size of the inputs, as far as is known."""
    pairs = zip(one.shape, other.shape, strict=False)
    return one.dim() == other.dim() and all(statically_known_true(a == b) for a, b in pairs)


def _read(parts: list[Pointwise]) -> list[fx.Node]:
    inside = {part.node for part in parts}
    return list(dict.fromkeys(each for part in parts for each in part.reads if each not in inside))


def _region(parts: tuple[Pointwise, ...]) -> Region:
    """Return the region of some operations."""
    inputs = _read(list(parts))
    result = value_of(parts[-1].node)
    whole = [each for each in inputs if same_shape(value_of(each), result) and not is_mask(each)]
    computed = [each for each in whole if each.op != "get_attr"]
    floats = [each for each in inputs if not is_mask(each)]
    first = next(iter([*_leading(parts, computed), *computed, *whole, *floats]))
    inside = {part.node for part in parts}
    others = tuple(part.node for part in parts[:-1] if part.node.users.keys() - inside)
    return Region(parts, (first, *(each for each in inputs if each is not first)), others)


def _leading(parts: tuple[Pointwise, ...], whole: list[fx.Node]) -> list[fx.Node]:
    """Return the input that the first operands of a region lead to, if it is one of these."""
    inside = {part.node: part for part in parts}
    node: fx.Node | None = parts[-1].node
    while node in inside:
        same = (each for each in inside[node].reads if each in inside or each in whole)
        node = next(same, None)
    return [node] if node is not None else []
