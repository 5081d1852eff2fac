"""Lines that refuse tensors whose rows a kernel would broadcast before it reduces them.

A kernel has one shape for all that a region of rows reads. In `x.sum(-1, True) + y` PyTorch sums a row of
one element to itself, and the kernel would sum it as often as y has elements in a row.
"""

from collections.abc import Iterator, Mapping

from torch import Tensor, fx

from fusegen.models.lift.regions.biases import without_bias
from fusegen.models.lift.regions.extremes import NAMES
from fusegen.models.lift.regions.pointwise import Pointwise, operation_of
from fusegen.models.lift.regions.region import Region
from fusegen.models.lift.regions.region_spec import RegionSpec
from fusegen.models.reader.aten_calls import value_of
from fusegen.models.reader.row_calls import NORMS, POOLS

SAME = frozenset(("mean", "amax", "amin", *NORMS, *POOLS))  # of equal elements, however many there are


def required_sizes(of: RegionSpec | None, texts: Mapping[fx.Node, str]) -> list[str]:
    """Return the lines that refuse such rows in front of the call of a region, from texts of its inputs."""
    lines: list[str] = []
    for reduced, wider, dim in _broadcast(of.region) if of is not None else ():
        size, other = f"{texts[reduced[0]]}.size({dim})", f"{texts[wider]}.size({dim})"
        each = " == ".join(f"{texts[node]}.size({dim})" for node in reduced)
        lines.append(f"if {each} == 1 != {other}:")
        lines.append(f'    raise ValueError("forward was traced with {size}={other}")')
    return list(dict.fromkeys(lines)) if len(lines) == 2 else lines


def is_broadcast(of: RegionSpec | None) -> bool:
    """Return True if the inputs of a region may have such rows."""
    return of is not None and any(_broadcast(of.region))


def _broadcast(region: Region) -> Iterator[tuple[tuple[fx.Node, ...], fx.Node, int]]:
    """Yield the inputs of which a reduction computes, and each that may be wider, with the dimension."""
    rows = region.rows
    if rows is None or rows.layer or rows.groups:
        return
    parts = {part.node: part for part in region.parts}
    for part in region.parts:
        if part.reduces is None or operation_of(part.node) in SAME or part.node.target in NAMES:
            continue
        read = _read(part.reduces, parts)
        for dim in (each - region.whole.dim() for each in rows.dims):
            reduced = tuple(node for node in region.inputs if node in read and _has(node, dim))
            others = (node for node in region.inputs if node not in read and _has(node, dim))
            yield from ((reduced, node, dim) for node in others if reduced)


def _read(node: fx.Node, parts: Mapping[fx.Node, Pointwise]) -> frozenset[fx.Node]:
    """Return the inputs of a region of whose elements a value is computed, not of values of rows."""
    part = parts.get(node)
    if part is None:
        return frozenset((node,))
    return frozenset() if part.is_fold else frozenset().union(*(_read(each, parts) for each in part.reads))


def _has(node: fx.Node, dim: int) -> bool:
    """Return True if the size of a dimension may be another one than 1."""
    value = value_of(node)
    if any(each.target is without_bias for each in node.all_input_nodes) and node.args[1] == 1:
        return False  # a bias, with as many channels as its output, and without dimensions on the CPU
    return isinstance(value, Tensor) and value.dim() >= -dim and not _is_one(value.shape[dim])


def _is_one(size: object) -> bool:
    return isinstance(size, int) and size == 1
