"""The maximal pointwise regions of a graph.

A region has one result, and every other value in it is read in the region only; one of rows may have
another result, of each element or of each row. So no path leaves a region and comes back, and its kernel
can run where the result is computed. All its values have the shape of the result, or an eighth of its
elements or fewer: such a value is computed again for each element that it is broadcast to. A region may
reduce rows where the table of operators says so: then its values have the shape of what is reduced, and its
result may be a value of each row. Or it pools windows, once.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx

from fusegen.models.lift.labels import Known, label_of, plain
from fusegen.models.lift.regions.growing import grown, read, same_shape, same_sizes
from fusegen.models.lift.regions.pointwise import LABEL, Pointwise, is_mask, numbers_of, pointwise
from fusegen.models.lift.regions.region import Region
from fusegen.models.reader.aten_calls import value_of
from fusegen.models.reader.aten_table import ROWS, Rows
from fusegen.models.reader.formula import Unfit, number, substituted

SEVERAL = "its tensors are of several dtypes or devices"
SLOWER = "no kernel that reduces is known to be faster"
SLOWER_DROPOUT = "no kernel with a dropout is known to be faster"
NO_ROWS = "no tensor that a kernel reads has the dimensions that it reduces"


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
    yield from (*_ends_of_batch(of), *_early(of), *_ends_of_results(of))
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


def _ends_of_results(of: Region) -> Iterator[fx.Node]:
    """Yield other results that are neither of the shape of the last one nor values of its rows."""
    sizes, dims = of.whole.shape, of.rows.dims if of.rows else ()
    kept = [1 if d in dims else size for d, size in enumerate(sizes)]
    shapes = (kept, [size for d, size in enumerate(sizes) if d not in dims])
    for node in of.others:
        own, is_value = value_of(node), node in of.of_rows and of.result not in of.of_rows
        if is_value and any(same_sizes(own.shape, shape) for shape in shapes):
            continue
        if node in of.of_rows or not same_shape(own, value_of(of.result)):
            yield node


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
        why = NO_ROWS if not is_whole else "" if is_faster(of) else SLOWER if of.reduces else SLOWER_DROPOUT
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
    return replace(made, parts=_with_constants(made), inputs=(first, *others, *made.along))


def _with_constants(of: Region) -> tuple[Pointwise, ...]:
    """Return the operations of a region with numbers in the formulas of its elements.

    Tables, fitted pieces and rewrites of elements depend on the values of these, and the first loop of a
    batch norm has no others; what runs once a row is as fast with a number of the call.
    """
    return tuple(
        part if part.is_of_rows or part.node in of.of_rows else replace(part, body=_with_numbers(part))
        for part in of.parts
    )


def _with_numbers(part: Pointwise) -> ast.expr:
    named = [each for each in numbers_of(part.node) if isinstance(each, Known)]
    return substituted(part.body, {f"{LABEL}{label_of(each)}": number(plain(each)) for each in named})


def _leading(parts: tuple[Pointwise, ...], whole: list[fx.Node]) -> list[fx.Node]:
    """Return the input that the first operands of a region lead to, if it is one of these."""
    inside = {part.node: part for part in parts}
    node: fx.Node | None = parts[-1].node
    while node in inside:
        same = (each for each in inside[node].reads if each in inside or each in whole)
        node = next(same, None)
    return [node] if node is not None else []
