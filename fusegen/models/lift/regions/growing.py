"""The growth of regions: from the result of each back, what only the region reads."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fusegen.models.lift.regions.pointwise import Pointwise, is_mask
from fusegen.models.reader.aten_calls import hint, value_of
from fusegen.models.reader.row_calls import Reduced

MOST_OPERATIONS, MOST_TENSORS = 32, 8
SMALLER = 8  # times fewer elements


@dataclass
class Growing:
    """A region that grows."""

    result: Tensor  # the value of its result
    whole: Tensor  # the value of the shape of its elements: that of the result, or of what is reduced to it
    rows: Reduced | None = None  # what it reduces
    has_pool: bool = False
    drops: bool = False  # whether it has a dropout, beside which nothing is reduced
    parts: list[Pointwise] = field(default_factory=list)  # the last one is first
    has_other: bool = False  # it has another result

    @property
    def is_turned(self) -> bool:
        """True if its result has another shape than its elements."""
        return not same_shape(self.result, self.whole)

    def takes(self, part: Pointwise) -> bool:
        """Tell if an operation may be one of the region's."""
        own = value_of(part.node)
        if len(self.parts) >= MOST_OPERATIONS or own.device != self.result.device:
            return False
        if self.drops and (part.reduces is not None or part.drops):
            return False
        if part.is_pool:
            fits = self._turns(part)
        elif part.rows is not None:
            fits = (
                not self.has_pool
                and (self.rows is None or (self.rows == part.rows and not part.rows.layer))
                and (self._turns(part) or self._reduces(part))
            )
        else:
            fits = any(same_shape(own, each) for each in (self.whole, self.result))
            if part.drops:
                return fits and self.rows is None and not self.has_pool
            fits = fits or SMALLER * elements(own) <= elements(self.whole)
        return fits and len(read([part, *reversed(self.parts)])) <= MOST_TENSORS

    def take(self, part: Pointwise) -> None:
        """Add an operation that the region takes."""
        if part.reduces is not None and self._turns(part):
            self.whole = value_of(part.reduces)
        self.rows = self.rows or part.rows
        self.has_pool |= part.is_pool
        self.drops |= bool(part.drops)
        self.parts.append(part)

    def _turns(self, part: Pointwise) -> bool:
        """Tell if the operation reduces elements of another shape to values of that of the result."""
        is_first = not self.is_turned and same_shape(value_of(part.node), self.result)
        if part.is_pool:
            return is_first and not self.has_pool and self.rows is None
        return is_first and part.is_fold and not self._reduces(part)

    def _reduces(self, part: Pointwise) -> bool:
        return part.reduces is not None and same_shape(value_of(part.reduces), self.whole)


def grown(
    graph: fx.Graph,  # it
    known: Mapping[fx.Node, Pointwise],  # its operations
    ends: Collection[fx.Node],  # the nodes that are in the region of no reader
    most_results: int,  # of a region of rows
) -> list[tuple[Pointwise, ...]]:
    """Return the operations of each region.

    What others read behind its result may be another result of a region of rows.
    """
    order = {node: place for place, node in enumerate(graph.nodes)}
    root_of: dict[fx.Node, fx.Node] = {}
    made: dict[fx.Node, Growing] = {}
    for node in reversed(graph.nodes):
        part = known.get(node)
        if part is None or not node.users:
            continue
        roots = {root_of.get(user) for user in node.users}
        several = len(roots) > 1
        root = _first(node, root_of, order) if several else roots.pop()
        of = made[root] if root is not None and node not in ends else None
        if of is not None and several and (of.has_other or most_results < 2 or not _is_result(part, of)):
            of = None
        if root is not None and of is not None and of.takes(part):
            root_of[node] = root
            of.take(part)
            of.has_other |= several
        elif part.is_value and not is_mask(node):
            root_of[node], own = node, value_of(node)
            made[node] = Growing(own, own)
            made[node].take(part)
    return [tuple(reversed(each.parts)) for each in reversed(made.values())]


def _first(
    node: fx.Node, root_of: Mapping[fx.Node, fx.Node], order: Mapping[fx.Node, int]
) -> fx.Node | None:
    """Return the result of the first region that reads a node, if all other readers are behind it."""
    roots = [root_of[user] for user in node.users if user in root_of]
    first = min(roots, key=order.__getitem__, default=None)
    others = [user for user in node.users if root_of.get(user) is not first]
    return first if first and all(order[user] > order[first] for user in others) else None


def _is_result(part: Pointwise, of: Growing) -> bool:
    """Tell if a value may be another result of a region of rows: of its shape, or one of each row."""
    own = value_of(part.node)
    if not part.is_value or is_mask(part.node) or of.is_turned or own.dtype != of.result.dtype:
        return False
    if (of.rows is not None and of.rows.layer) or of.has_pool or of.drops:
        return False
    if part.is_fold or SMALLER * elements(own) <= elements(of.result):
        return True  # unless it is found to be no value of a row
    return of.rows is not None and same_shape(own, of.result)


def elements(of: Tensor) -> int:
    """Return the elements of an example value."""
    return math.prod(map(hint, of.shape))


def same_shape(one: Tensor, other: Tensor) -> bool:
    """Return True if two tensors have one shape for every size of the inputs, as far as is known."""
    return same_sizes(one.shape, other.shape)


def same_sizes(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return True if two shapes are one for every size of the inputs, as far as is known."""
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(statically_known_true(a == b) for a, b in pairs)


def read(parts: Sequence[Pointwise]) -> list[fx.Node]:
    """Return the nodes outside that some operations read, in order."""
    inside = {part.node for part in parts}
    return list(dict.fromkeys(each for part in parts for each in part.reads if each not in inside))
