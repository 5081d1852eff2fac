"""The maximal pointwise regions of a graph.

A region has one result, and every other value in it is read in the region only. So no path leaves a region
and comes back, and its kernel can run where the result is computed. All its values have the shape of the
result, or an eighth of its elements or fewer: such a value is computed again for each element that it is
broadcast to. A region may reduce rows where the table of operators says so: then its values have the shape
of what is reduced, and its result may be a value of each row. Or it pools windows, once.
"""

import ast
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, fx

from fusegen.models.lift.labels import label_of
from fusegen.models.lift.regions.growing import grown, read, same_shape
from fusegen.models.lift.regions.pointwise import LABEL, NODE, Pointwise, is_mask, pointwise
from fusegen.models.reader.aten_calls import value_of
from fusegen.models.reader.aten_table import ROWS, Rows
from fusegen.models.reader.formula import Unfit
from fusegen.models.reader.row_calls import Reduced

SEVERAL = "its tensors are of several dtypes or devices"
SLOWER = "no kernel that reduces or draws is known to be faster"
NO_ROWS = "no tensor that a kernel reads has the dimensions that it reduces"
ALONG = "along"  # the view of a tensor of one dimension that formulas read along the channels


@dataclass(frozen=True)
class Region:
    """A pointwise region.

    Attributes:
        parts: its operations, in order; the last is the result.
        inputs: the nodes outside that it reads. The first has the shape of its elements if one has, and is
            no mask: that from which eager's result has its layout in memory, unless it is a parameter. The
            others are in the order of reading, those that run along the channels last.
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
    def rows(self) -> Reduced | None:
        """The dimensions that it reduces."""
        return next((part.rows for part in self.parts if part.rows is not None), None)

    @property
    def is_of_rows(self) -> bool:
        """True if it reduces rows."""
        return self.rows is not None

    @property
    def layer(self) -> str:
        """The path of its batch norm; empty where it has none."""
        return self.rows.layer if self.rows is not None else ""

    @property
    def drops(self) -> Any:
        """The path of the mode by which its dropout drops elements, or True; None where it has none."""
        return next((part.drops for part in self.parts if part.drops), None)

    @property
    def reduces(self) -> bool:
        """True if it reduces rows or windows."""
        return any(part.reduces is not None for part in self.parts)

    @property
    def whole(self) -> Tensor:
        """The example value of the shape of its elements: of its result, or of what it reduces."""
        found: Tensor = value_of(next((each.reduces for each in self.parts if each.reduces), self.result))
        return found

    @functools.cached_property
    def pooled(self) -> frozenset[fx.Node]:
        """The nodes that its pooling reads, itself, and what these read."""
        found = {part.node for part in self.parts if part.is_pool}
        for part in reversed(self.parts):
            found |= {*part.reads} if part.node in found else set()
        return frozenset(found)

    @functools.cached_property
    def of_rows(self) -> frozenset[fx.Node]:
        """The nodes whose values are one of each row."""
        found = set[fx.Node]()
        for part in self.parts:
            inside = [each for each in part.reads if each in found]
            if part.is_fold or (inside and len(inside) == len(part.reads)):
                found.add(part.node)
        return frozenset(found)

    @property
    def restored(self) -> tuple[Any, ...]:
        """The index that gives a result of a value a row the dimensions of size 1 that eager's has."""
        value, whole = value_of(self.result), self.whole
        if self.rows is None or self.result not in self.of_rows or value.dim() < whole.dim():
            return ()
        return (*[slice(None)] * self.rows.dims[0], *[None] * len(self.rows.dims))

    @property
    def along(self) -> tuple[fx.Node, ...]:
        """The inputs of one dimension that it reads along the channels."""
        names = {
            ast.unparse(each.args[0])
            for part in self.parts
            for each in ast.walk(part.body)
            if isinstance(each, ast.Call) and ast.unparse(each.func) == ALONG
        }
        read = (node for part in self.parts for node in part.node.all_input_nodes)
        return tuple(dict.fromkeys(node for node in read if f"{NODE}{node.name}" in names))

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the numbers that it reads, each once, in order."""
        names = (
            each.id for part in self.parts for each in ast.walk(part.body) if isinstance(each, ast.Name)
        )
        read = [name[len(LABEL) :] for name in names if name.startswith(LABEL)]
        groups = label_of(self.rows.groups) if self.rows is not None else None
        return tuple(dict.fromkeys([*read, *([groups] if groups else [])]))


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
    ends = set[fx.Node]()
    while True:
        regions = tuple(_region(parts) for parts in grown(graph, known, ends, most_results))
        before, apart = len(ends), {node: why for each in regions for node, why in _apart(each, is_faster)}
        ends |= {node for each in regions for node in _ends(each)}
        if len(ends) == before and not apart:
            return Partition(regions, reasons)
        if len(ends) == before:
            known = {node: part for node, part in known.items() if node not in apart}
            reasons |= apart


def _ends(of: Region) -> Iterator[fx.Node]:
    """Yield the reduced values that have to end a region, as no kernel reads what is there besides them."""
    result = value_of(of.result)
    is_turned = of.result not in of.of_rows and not same_shape(result, of.whole)
    yield from (*_ends_of_batch(of), *_early(of))
    for part in of.parts:
        own = value_of(part.node)
        is_reduced = part.reduces in of.of_rows
        is_mixed = is_turned and part.node not in of.of_rows and same_shape(own, result)
        for each in (each for each in part.reads if each in of.of_rows):
            is_like = part.node in of.of_rows or own.dim() == of.whole.dim()
            is_placed = part.is_fold or (is_like and value_of(each).dim() == own.dim())  # or others
            if is_reduced or is_mixed or not is_placed:
                yield each
    behind = {each for part in of.parts if part.node not in of.pooled for each in part.reads}
    pools = {part.node for part in of.parts if part.is_pool}
    if behind & of.pooled - pools:
        yield from pools


def _ends_of_batch(of: Region) -> Iterator[fx.Node]:
    """Yield the values that have to end a region of a batch norm, whose kernel takes no masks.

    What it averages reads no numbers, which the kernel has behind its first loop only.
    """
    inside, norm = {*of.nodes}, next((part for part in of.parts if part.rows and part.rows.layer), None)
    if norm is None:
        return
    front = {norm.node}
    for part in reversed(of.parts):
        if part.node in front:
            front |= {*part.reads}
        numbers = LABEL in ast.dump(part.body)
        masks = any(is_mask(each) and each not in inside for each in part.reads)
        if part.node in front and part is not norm and (numbers or masks):
            yield part.node
        elif masks:
            yield from (each for each in part.reads if each in inside)


def _early(of: Region) -> Iterator[fx.Node]:
    """Yield a dropout behind which others may draw before the region runs, where its result is."""
    for place, part in enumerate(of.parts):
        node: Any = part.node
        while part.drops and node is not of.result:
            node, ends = node.next, {each.node for each in of.parts[place:]}
            if node not in ends and node.op.startswith("call_"):
                yield part.node
                break


def _apart(of: Region, is_faster: Callable[[Region], bool]) -> Iterator[tuple[fx.Node, str]]:
    """Yield the operations without which the rest of a region may be one or several, and why."""
    tensors = [value_of(each) for each in (*of.inputs, of.result) if not is_mask(each)]
    if len({each.dtype for each in tensors}) > 1:
        yield from ((part.node, SEVERAL) for part in of.parts if part.is_cast)
    elif of.reduces or of.drops:
        is_whole = not of.reduces or value_of(of.inputs[0]).dim() == of.whole.dim()
        why = NO_ROWS if not is_whole else "" if is_faster(of) else SLOWER
        yield from ((part.node, why) for part in of.parts if why and (part.reduces or part.drops))


def _region(parts: tuple[Pointwise, ...]) -> Region:
    """Return the region of some operations."""
    inputs = read(parts)
    inside = {part.node for part in parts}
    results = tuple(part.node for part in parts[:-1] if part.node.users.keys() - inside)
    made = Region(parts, tuple(inputs), results)
    among = [each for each in inputs if each in made.pooled] or inputs
    whole = [each for each in among if same_shape(value_of(each), made.whole) and not is_mask(each)]
    computed = [each for each in whole if each.op != "get_attr"]
    floats = [each for each in among if not is_mask(each)]
    first = next(iter([*_leading(parts, computed), *computed, *whole, *floats]))
    others = [each for each in inputs if each is not first and each not in made.along]
    return replace(made, inputs=(first, *others, *made.along))


def _leading(parts: tuple[Pointwise, ...], whole: list[fx.Node]) -> list[fx.Node]:
    """Return the input that the first operands of a region lead to, if it is one of these."""
    inside = {part.node: part for part in parts}
    node: fx.Node | None = parts[-1].node
    while node in inside:
        same = (each for each in inside[node].reads if each in inside or each in whole)
        node = next(same, None)
    return [node] if node is not None else []
