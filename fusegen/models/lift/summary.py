"""The report of a network: its regions, the traffic that they save, and what stays PyTorch's."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import fx

from fusegen.errors import counted
from fusegen.models.lift.found import Found
from fusegen.models.lift.fx_graph import what
from fusegen.models.lift.places import shown
from fusegen.models.lift.regions.biases import bias_of, without_bias
from fusegen.models.lift.regions.builds import Named
from fusegen.models.lift.regions.expected import CHIP, expected
from fusegen.models.lift.regions.region_spec import RegionSpec, elements
from fusegen.models.lift.regions.worth import Traffic, in_bytes, traffic
from fusegen.models.reader.aten_calls import value_of

FIRST = 3  # of the nodes that a sentence names
HEAD = ("kernel", "regions", "elements", "bytes saved", "of eager's")
TIMES = (f"expected on {CHIP}", "eager")  # which the cost model knows of CUDA alone
LEFT = "PyTorch's: {names}: {why}"
APART = "a kernel adds the bias"
MODES = ("in training:", "in evaluation:")


def summary(of: Found, names: Named, device: str) -> Iterator[str]:
    """Yield sentences and a table: regions by kernels, then the calls that stay PyTorch's, by reason."""
    for graph, mode in zip(of.modes.graphs, MODES, strict=False):
        if len(of.modes.graphs) > 1:
            yield mode
        chosen = [each for each in of.chosen if each.region.result.graph is graph]
        own = {names.names[each.key] for each in chosen}
        yield f"{counted(len(chosen), 'region')} in {counted(len(own), 'kernel')}"
        kernels = {
            path: [each for each in chosen if names.names[each.key] == path.stem]
            for path in names.texts
            if path.stem in own
        }
        yield from table([_row(path, here, device) for path, here in kernels.items()], device)
        for path, here in kernels.items():
            yield f"{path.stem}: {listed([', '.join(dict.fromkeys(_places(each))) for each in here])}"
        yield from left({node: why for node, why in of.left.items() if node.graph is graph})


def table(rows: list[tuple[str, ...]], device: str) -> Iterator[str]:
    """Yield the lines of a table of kernels: names to the left, numbers to the right."""
    lines = [(*HEAD, *(TIMES if device == "cuda" else ())), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, *numbers in lines:
        cells = [name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])]
        yield "  ".join(cells)


def left(nodes: Mapping[fx.Node, str]) -> Iterator[str]:
    """Yield a sentence for each reason, with the first of the calls that it keeps in PyTorch."""
    by_reason: dict[str, list[fx.Node]] = {}
    for node, why in nodes.items():
        by_reason.setdefault(APART if node.target is without_bias else why, []).append(node)
    for why, found in by_reason.items():
        yield LEFT.format(names=listed([_named(node) for node in found]), why=why)


def listed(names: list[str]) -> str:
    """Return the first of some names, and the number of the others."""
    more = len(names) - FIRST
    return f"{', '.join(names[:FIRST])} and {more} more" if more > 0 else ", ".join(names)


def _row(spec: Path, regions: list[RegionSpec], device: str) -> tuple[str, ...]:
    """Return the cells of a kernel that some regions run."""
    each = [traffic(one.region) for one in regions]
    moved = Traffic(sum(t.passes for t in each), sum(t.eager for t in each), sum(t.kernel for t in each))
    number = sum(elements(one.region) for one in regions)
    cells = (spec.stem, str(len(regions)), f"{number:,}", in_bytes(moved.saved), in_bytes(moved.eager))
    if device != "cuda":
        return cells
    bits = 8 * value_of(regions[0].region.result).element_size()
    times = [
        expected(spec, elements(one.region), bits, own) for one, own in zip(regions, each, strict=True)
    ]
    sums = (sum(time.kernel for time in times), sum(time.eager for time in times))
    return (*cells, *(f"{seconds * 1e6:.3g} us" for seconds in sums))


def _places(of: RegionSpec) -> Iterator[str]:
    """Yield the calls of a region, behind the convolution that its kernel has, too."""
    if of.front is not None:
        yield of.front.path
    yield from map(_named, of.region.nodes)


def _named(node: fx.Node) -> str:
    """Return a call with its place; a convolution without its bias, and that bias, by the layer's name."""
    name = bias_of(node) or what(node)
    if node.target is without_bias:
        name = str(node.all_input_nodes[0].target)
    place = shown(node)
    return f"{name} ({place})" if place else name
