"""The calls of a forward that have a text, and those whose text stands in another's."""

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import SymFloat, SymInt, fx

from fusegen.models.lift.partial.call_text import counts
from fusegen.models.lift.partial.row_sizes import is_broadcast
from fusegen.models.lift.regions.aliases import writes
from fusegen.models.lift.regions.biases import pairs_of, without_bias
from fusegen.models.lift.regions.pointwise import constant_of
from fusegen.models.lift.regions.region_spec import RegionSpec
from fusegen.models.reader.aten_calls import value_of


@dataclass(frozen=True)
class Context:
    """The context of the text of forward."""

    graph: fx.Graph  # of forward
    regions: Mapping[fx.Node, RegionSpec]  # by their results
    functions: Mapping[str, str]  # the names of the regions' functions, by their keys
    names: Mapping[str, Any]  # of the file, with their values
    lines: Mapping[fx.Node, int]  # of the model's file, by node
    # the variable that a line of the model assigns to; empty where there is none
    variable: Callable[[int], str]


def laid_by(regions: Iterable[RegionSpec], functions: Mapping[str, str]) -> dict[fx.Node, str]:
    """Return the kernels that say how convolutions in front of reductions are laid, by their calls.

    Args:
        regions: those of a file.
        functions: the names of their functions, by their keys.
    """
    reducing = (each for each in regions if each.region.reduces)
    return {pair: f"{functions[each.key]}_kernels" for each in reducing for pair in pairs_of(each.region)}


def is_item(node: fx.Node, of: Context) -> bool:
    """True if a node is a call in the text, which an input, an attribute and half of a pair is not."""
    if node.op in ("placeholder", "get_attr"):
        return False
    is_read = bool(node.users) or node.op in ("output", "call_module") or writes(node)
    return is_read and not _is_half(node)


def folded(of: Context) -> set[fx.Node]:
    """Return the nodes without a text: those inside of regions, and the numbers that only these read."""
    found = {part for each in of.regions.values() for part in each.region.nodes} - set(of.regions)
    gone = found | set(of.regions)
    for node in reversed(of.graph.nodes):
        is_number = node.op == "call_function" and isinstance(value_of(node), SymInt | SymFloat)
        known = constant_of(node) is not None or is_number
        if known and node.users and set(node.users) <= gone:
            found.add(node)
            gone.add(node)
    return found


def _is_half(node: fx.Node) -> bool:
    """Return True if a node is the output or the bias of a convolution without its bias."""
    of = node.args[0] if node.args else None
    return node.target is operator.getitem and isinstance(of, fx.Node) and of.target is without_bias


def reads(node: fx.Node, of: Context) -> Iterator[fx.Node]:
    """Yield the nodes in the text of a node."""
    yield from of.regions[node].region.inputs if node in of.regions else node.all_input_nodes


def within(
    items: Sequence[fx.Node], read_by: Mapping[fx.Node, tuple[fx.Node, ...]], of: Context
) -> dict[fx.Node, fx.Node]:
    """The nodes whose text stands in the next call's: it is of one statement and alone reads them, once."""
    readers: dict[fx.Node, list[fx.Node]] = {}
    for node in items:
        for each in read_by[node]:
            readers.setdefault(each, []).append(node)
    found: dict[fx.Node, fx.Node] = {}
    for node, following in itertools.pairwise(items):
        own = readers.get(node, [])
        once = own == [following] and _count(node, following, read_by) == 1
        same = of.lines.get(node, 0) == of.lines.get(following, 0) != 0 or following.op == "output"
        is_named = counts(node) or node.target is without_bias or is_broadcast(of.regions.get(following))
        if once and same and not is_named:
            found[node] = following
    return found


def _count(node: fx.Node, reader: fx.Node, read_by: Mapping[fx.Node, tuple[fx.Node, ...]]) -> int:
    given = itertools.chain(reader.args, reader.kwargs.values())
    return max(1, sum(each is node for each in given)) if node in read_by[reader] else 0
