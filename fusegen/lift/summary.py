"""The report of a network: its regions, the traffic that they save, and what stays PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import fx

from fusegen.errors import counted
from fusegen.lift.found import Found
from fusegen.lift.graph import what
from fusegen.lift.places import shown
from fusegen.lift.regions.biases import bias_of, without_bias
from fusegen.lift.regions.builds import Named
from fusegen.lift.regions.examples import value_of
from fusegen.lift.regions.expected import CHIP, expected
from fusegen.lift.regions.spec import RegionSpec, elements
from fusegen.lift.regions.worth import Traffic, traffic

FIRST = 3  # of the nodes that a sentence names
REGION = "{name}: {places}: {elements} elements, saves {saved} of {eager}; {kernel} for {usual} on {chip}"
LEFT = "PyTorch's: {names}: {why}"
APART = "a kernel adds the bias"
MODES = ("in training:", "in evaluation:")
UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def summary(of: Found, names: Named) -> Iterator[str]:
    """Sentences: the regions by their kernels, then the other calls by what keeps them in PyTorch.

    Args:
        of: the regions of a network.
        names: their specs, which are built.
    """
    for graph, mode in zip(of.modes.graphs, MODES, strict=False):
        if len(of.modes.graphs) > 1:
            yield mode
        chosen = [each for each in of.chosen if each.region.result.graph is graph]
        own = {names.names[each.key] for each in chosen}
        yield f"{counted(len(chosen), 'region')} in {counted(len(own), 'kernel')}"
        for path in (path for path in names.texts if path.stem in own):
            here = [each for each in chosen if names.names[each.key] == path.stem]
            yield _kernel(path.stem, path, here)
        yield from left({node: why for node, why in of.left.items() if node.graph is graph})


def left(nodes: Mapping[fx.Node, str]) -> Iterator[str]:
    """A sentence for each reason, with the first of the calls that it keeps in PyTorch."""
    by_reason: dict[str, list[fx.Node]] = {}
    for node, why in nodes.items():
        by_reason.setdefault(APART if node.target is without_bias else why, []).append(node)
    for why, found in by_reason.items():
        yield LEFT.format(names=listed([_named(node) for node in found]), why=why)


def listed(names: list[str]) -> str:
    """The first of some names, and the number of the others."""
    more = len(names) - FIRST
    return f"{', '.join(names[:FIRST])} and {more} more" if more > 0 else ", ".join(names)


def _kernel(name: str, spec: Path, regions: list[RegionSpec]) -> str:
    """The sentence of a kernel that some regions run."""
    each = [traffic(one.region) for one in regions]
    moved = Traffic(sum(t.passes for t in each), sum(t.eager for t in each), sum(t.kernel for t in each))
    number = sum(elements(one.region) for one in regions)
    bits = 8 * value_of(regions[0].region.result).element_size()
    time = expected(spec, number, bits, moved)
    places = listed([", ".join(dict.fromkeys(_places(one))) for one in regions])
    return REGION.format(
        name=name,
        places=places,
        elements=f"{number:,}",
        saved=_bytes(moved.saved),
        eager=_bytes(moved.eager),
        chip=CHIP,
        kernel=f"{time.kernel * 1e6:.3g} us",
        usual=f"{time.eager * 1e6:.3g} us",
    )


def _places(of: RegionSpec) -> Iterator[str]:
    """The calls of a region, behind the convolution that its kernel has, too."""
    if of.front is not None:
        yield of.front.path
    yield from map(_named, of.region.nodes)


def _named(node: fx.Node) -> str:
    """A call with its place; a convolution without its bias, and that bias, by the layer's name."""
    name = bias_of(node) or what(node)
    if node.target is without_bias:
        name = str(node.all_input_nodes[0].target)
    place = shown(node)
    return f"{name} ({place})" if place else name


def _bytes(number: int) -> str:
    size, unit = next((one for one in UNITS if number >= one[0]), UNITS[-1])
    return f"{number / size:.3g} {unit}"
