"""The lines of a forward: the calls of PyTorch and of regions, in the order of the graph.

Values have the names of the model's variables. A value that only the next call of the same statement reads
stands in its line.
"""

import inspect
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from fusegen.models.lift.merged_modes import CALL
from fusegen.models.lift.partial.attributes import attribute
from fusegen.models.lift.partial.call_text import call_text, required_count, value_text, wrapped
from fusegen.models.lift.partial.forward_items import Context, folded, is_item, laid_by, reads, within
from fusegen.models.lift.partial.readable import SIZES
from fusegen.models.lift.partial.row_sizes import required_sizes
from fusegen.models.lift.regions.biases import without_bias
from fusegen.models.lift.regions.naming import WISHED
from fusegen.models.lift.regions.pointwise import CONSTANT
from fusegen.models.lift.regions.region_spec import RegionSpec
from fusegen.models.reader.formula import Unfit

MOST_INSIDE = 64  # characters of a text that stands in another line


class CannotWrite(Exception):
    """A node that has no text, and a clause that says why."""

    def __init__(self, node: fx.Node, why: str) -> None:
        super().__init__(why)
        self.node, self.why = node, why


def forward_lines(of: Context) -> list[str]:
    """Return the lines of forward below its signature.

    Raises:
        CannotWrite: a node has no text.
    """
    without_text = folded(of)
    items = [node for node in of.graph.nodes if node not in without_text and is_item(node, of)]
    read_by = {node: tuple(reads(node, of)) for node in items}
    written = _Lines(of, read_by, within(items, read_by, of))
    for node in items:
        try:
            written.take(node)
        except Unfit as error:
            raise CannotWrite(node, str(error)) from None
    return written.lines


@dataclass
class _Lines:
    """The lines so far."""

    of: Context  # what they depend on
    reads: Mapping[fx.Node, tuple[fx.Node, ...]]  # the nodes in the text of each
    within: dict[fx.Node, fx.Node]  # nodes whose text stands in another's
    texts: dict[fx.Node, str] = field(default_factory=dict)  # of the nodes so far: names, or expressions
    holders: dict[str, fx.Node] = field(default_factory=dict)  # the node that each variable holds
    lines: list[str] = field(default_factory=list)  # of forward

    def __post_init__(self) -> None:
        for node in self.of.graph.nodes:
            if node.op == "placeholder":
                self.texts[node] = str(node.target)
                self.holders[str(node.target)] = node
        order = {node: place for place, node in enumerate(self.reads)}
        self.last = {
            each: max(order[self._statement(node)] for node, read in self.reads.items() if each in read)
            for each in dict.fromkeys(itertools.chain(*self.reads.values()))
        }
        self.order = order
        self.laid = laid_by(self.of.regions.values(), self.of.functions)

    def _statement(self, node: fx.Node) -> fx.Node:
        """Return the node whose line a node's text is in."""
        while node in self.within:
            node = self.within[node]
        return node

    def take(self, node: fx.Node) -> None:
        """Write the next node, in a line of its own or for the next one."""
        for each in self.reads[node]:
            if each.op == "get_attr":
                self.texts[each] = self._attribute(each)
        self.lines += required_sizes(self.of.regions.get(node), self.texts)
        text = self._text(node)
        if node.op == "output":
            self.lines += wrapped(f"return {text}")
        elif node.target is without_bias:
            self._pair(node, text)
        elif node in self.within and len(text) <= MOST_INSIDE:
            self.texts[node] = text
        elif not node.users:
            self.lines.append(text)
        else:
            self.within.pop(node, None)
            self.lines += wrapped(f"{self._named(node, self._wished(node))} = {text}")
            self.lines += required_count(node, self.texts[node])

    def _text(self, node: fx.Node) -> str:
        if node in self.of.regions:
            region = self.of.regions[node]
            given = [self.texts[each] for each in region.region.inputs]
            if region.region.layer:
                return self._normed(region, given)
            given += [f"{name}={label}" for label, name in region.params.items()]
            if isinstance(region.region.drops, str):
                given.append(f"training={self._path(region.region.drops)}")
            return f"{self.of.functions[region.key]}({', '.join(given)}){_index(region.region.restored)}"
        if node.op == "output":
            text = value_text(node.args[0], self.texts)
            return text[1:-1] if isinstance(node.args[0], tuple) and len(node.args[0]) > 1 else text
        if node.op == "call_module":
            named = (f"{key}={value_text(each, self.texts)}" for key, each in node.kwargs.items())
            given = [*(value_text(each, self.texts) for each in node.args), *named]
            return f"{self._path(str(node.target))}({', '.join(given)})"
        text, kernels = call_text(node, self.texts, self.of.names), self.laid.get(node)
        return f"{kernels}.{text}" if kernels else text

    def _path(self, path: str) -> str:
        owner: Any = self.of.graph.owning_module
        return attribute(owner, path)

    def _normed(self, of: RegionSpec, given: list[str]) -> str:
        """Return the call of a kernel with a batch norm of the model, by its tensors and scalars."""
        layer = self._path(of.region.layer)
        given = [layer, *given, *of.params, f"{layer}.eps"]
        return f"{self.of.functions[of.key]}.layer({', '.join(given)})"

    def _attribute(self, node: fx.Node) -> str:
        """Return a parameter or buffer, or the number that forward makes a tensor of."""
        if not str(node.target).startswith("_tensor_constant"):
            return self._path(str(node.target))
        if CALL in node.meta:
            return str(node.meta[CALL])
        if CONSTANT not in node.meta:
            raise Unfit("it reads a tensor that forward makes of no input")
        return f"torch.tensor({value_text(node.meta[CONSTANT], {})})"

    def _pair(self, node: fx.Node, text: str) -> None:
        """The output and the bias of a convolution."""
        halves = sorted(node.users, key=lambda each: int(str(each.args[1])))
        layer = str(node.all_input_nodes[0].target).rsplit(".", 1)[-1]
        own = self.of.variable(self.of.lines.get(node, 0)) or (layer if layer.isidentifier() else "x")
        wished = (own, str(halves[1].meta[WISHED]))
        names = ", ".join(map(self._named, halves, wished))
        self.lines.append(f"{names} = {text}")

    def _is_called(self, name: str) -> bool:
        """Return True if a name is one of a module, a class or a function."""
        known = self.of.names.get(name)
        ours = {*self.of.functions.values(), *self.laid.values()}
        return name in ours or callable(known) or inspect.ismodule(known)

    def _wished(self, node: fx.Node) -> str:
        own = self.of.variable(self.of.lines.get(node, 0)) or node.name
        return str(node.target) if node.target in SIZES.values() else own

    def _named(self, node: fx.Node, wished: str) -> str:
        """Return a variable for a node: the wished one, if the value that it holds is read no more."""
        here = self.order.get(self._statement(node), self.order.get(_pair_of(node), 0))
        numbered = (f"{wished}_{number}" for number in itertools.count(2))
        for name in itertools.chain((wished,), numbered):
            holder = self.holders.get(name)
            free = holder is None or self.last.get(holder, -1) <= here
            if free and not self._is_called(name):
                self.holders[name] = node
                self.texts[node] = name
                return name
        raise AssertionError("there are infinitely many names")


def _index(items: tuple[Any, ...]) -> str:
    """Return an index of whole dimensions and new ones as Python text."""
    return f"[{', '.join(':' if each is not None else 'None' for each in items)}]" if items else ""


def _pair_of(node: fx.Node) -> Any:
    return node.args[0] if node.args else None
