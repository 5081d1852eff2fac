"""The regions of a model that are worth a kernel, and why other operations are PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from fusegen.models.lift.float_losses import put_losses_in
from fusegen.models.lift.fx_graph import LAYER, copied, own, what
from fusegen.models.lift.model_graphs import refuse_hooks, with_examples
from fusegen.models.lift.modes import Modes
from fusegen.models.lift.regions.biases import split_biases
from fusegen.models.lift.regions.extremes import close_extremes, open_extremes
from fusegen.models.lift.regions.moved_views import move_views
from fusegen.models.lift.regions.norms import close_norms, open_norms
from fusegen.models.lift.regions.region import Region
from fusegen.models.lift.regions.region_spec import RegionSpec, convolved
from fusegen.models.lift.rule import Rule
from fusegen.models.reader.aten_calls import TRACING
from fusegen.models.reader.aten_table import GUARDED
from fusegen.models.reader.row_calls import CAST_ROWS, OF_ROWS
from fusegen.models.reader.window_calls import WINDOWS

Inputs = Sequence[Any] | Mapping[str, Any]  # of a forward, by place or by name


@dataclass(frozen=True)
class Found:
    """The regions of a model."""

    name: str  # of the model
    model: nn.Module  # it
    modes: Modes  # the graphs of its forward
    chosen: tuple[RegionSpec, ...]  # the regions that are worth a kernel, in order
    left: Mapping[fx.Node, str]  # the calls that stay PyTorch's, in order, with a clause that says why
    unchosen: tuple[Region, ...] = ()  # the regions that are not worth a kernel

    def without(self, kept: Sequence[RegionSpec], why: str) -> Found:
        """Return the same with some regions alone; the others are PyTorch's for a reason."""
        slow = tuple(each.region for each in self.chosen if each not in kept)
        left = {**self.left, **{node: why for each in slow for node in each.nodes}}
        return replace(self, chosen=tuple(kept), left=left, unchosen=(*self.unchosen, *slow))


def found(
    model: nn.Module,  # it
    inputs: Sequence[Any] | Mapping[str, Any],  # of its forward, by place or by name
    source: str = "",  # the name of the model in specs
    least_passes: int = 2,  # of eager over memory, from which on a region has a kernel
    device: str = "",  # the type of that on which the kernels run; by default that of the inputs
    saved: int | None = None,  # bytes that a kernel has to save in a call; by default as the device says
) -> Found:
    """Return the regions of a model.

    Raises:
        NotAModel: its forward cannot be traced, or cannot run on these inputs.
    """
    with TRACING:  # arithmetic on the symbols of a graph is that of the graph which is being captured
        return _found(model, inputs, source or type(model).__name__, least_passes, device, saved)


def _found(
    model: nn.Module, inputs: Inputs, name: str, least_passes: int, device: str, saved: int | None
) -> Found:
    refuse_hooks(model, name)
    modes = with_examples(model, name, inputs)
    for graph in modes.graphs:
        put_losses_in(graph, least_passes)
    rows = {**GUARDED, **OF_ROWS, **WINDOWS, **CAST_ROWS}
    rule = Rule(least_passes, device=device, rows=rows, most_results=2, saved=saved)
    regions = _of_each_mode(model, modes, rule, inputs, name)
    if not _apart(rule, inputs):
        return regions
    chosen = tuple(convolved(each) for each in regions.chosen)
    fronts = {node for each in chosen if each.front for node in each.front.calls}
    left = {node: why for node, why in regions.left.items() if node not in fronts}
    return replace(regions, chosen=chosen, left=left)


def _of_each_mode(model: nn.Module, modes: Modes, rule: Rule, inputs: Any, name: str) -> Found:
    """The regions of a model in training and in evaluation, in graphs of their own where they differ."""
    both = with_norms(_in_each_mode(modes, model), rule, (True, False))
    for graph, of_mode in zip(both.graphs, rule.in_each_mode(both.graphs), strict=True):
        if _apart(rule, inputs):
            split_biases(graph, of_mode.partition(graph).regions, of_mode.adds_bias)
    found = regions_of(model, both, rule, name)
    training, evaluation = ([each for each in found.chosen if _is_of(each, one)] for one in both.graphs)
    if len(modes.graphs) > 1 or [*map(_place, training)] != [*map(_place, evaluation)]:
        return found
    first = both.graphs[0]
    left = {node: why for node, why in found.left.items() if node.graph is first}
    unchosen = tuple(each for each in found.unchosen if each.result.graph is first)
    modes = replace(modes, graphs=(first,))
    return replace(found, modes=modes, chosen=tuple(training), left=left, unchosen=unchosen)


def with_norms(of: Modes, rule: Rule, trains: Sequence[bool]) -> Modes:
    """Return modes whose graphs have the norms of regions as operations.

    Args:
        of: the modes.
        rule: by which regions are chosen.
        trains: of each graph, whether the batch norms in it train.
    """
    every: list[Mapping[str, bool]] = []
    for graph, is_training, by_mode in zip(of.graphs, trains, rule.in_each_mode(of.graphs), strict=True):
        open_norms(graph, is_training=is_training)
        open_extremes(graph)
        move_views(graph, by_mode.rows)
        chosen = _regions_of(graph, by_mode).chosen
        inside = [node for each in chosen for node in each.region.nodes]
        close_extremes(graph, inside)
        every.append(close_norms(graph, inside))
    before: Sequence[Mapping[str, bool]] = of.read or [{}] * len(every)
    return replace(of, read=tuple({**one, **own} for one, own in zip(before, every, strict=True)))


def _in_each_mode(of: Modes, model: nn.Module) -> Modes:
    """Return modes with a graph of each: one that holds in both is copied."""
    if len(of.graphs) > 1:
        return of
    other = copied(of.graphs[0])
    own(other, model)
    return replace(of, graphs=(*of.graphs, other), read=({}, {}))


def _is_of(region: RegionSpec, graph: fx.Graph) -> bool:
    return region.region.result.graph is graph


def _place(of: RegionSpec) -> tuple[str, ...]:
    """The operations of a region and what it reads, equal for equal regions of two copies of a graph."""
    return (of.key, *(node.name for node in (*of.region.inputs, *of.region.nodes)))


def _apart(rule: Rule, inputs: Any) -> bool:
    """True if PyTorch adds the bias of a convolution by a kernel of its own on the device of a rule."""
    return rule.device == "cuda" if rule.device else adds_bias_apart(inputs)


def adds_bias_apart(inputs: Any) -> bool:
    """Return True if PyTorch adds the bias of a convolution by a kernel of its own, as it does on CUDA."""
    return any(isinstance(each, Tensor) and each.is_cuda for each in tree_leaves(inputs))


def regions_of(model: nn.Module, modes: Modes, rule: Rule, name: str = "a graph") -> Found:
    """Return the regions, as a rule chooses them, of a module's graphs with example values."""
    rules = rule.in_each_mode(modes.graphs)
    each = [_regions_of(graph, of_mode) for graph, of_mode in zip(modes.graphs, rules, strict=True)]
    chosen = tuple(region for one in each for region in one.chosen)
    left = {node: why for one in each for node, why in one.left.items()}
    return Found(name, model, modes, chosen, left, tuple(region for one in each for region in one.unchosen))


@dataclass(frozen=True)
class _OfGraph:
    """The regions of one graph, as those of all."""

    chosen: list[RegionSpec]
    left: Mapping[fx.Node, str]
    unchosen: list[Region]


def _regions_of(graph: fx.Graph, rule: Rule) -> _OfGraph:
    """Return the regions of one graph, and the calls that stay PyTorch's."""
    parts = rule.partition(graph)
    chosen, unchosen = list[RegionSpec](), list[Region]()
    left = dict(parts.reasons)
    for region in parts.regions:
        text, why = rule.spec(region)
        if text is not None:
            chosen.append(text)
        else:
            unchosen.append(region)
            left |= dict.fromkeys(region.nodes, why)
    order = {node: place for place, node in enumerate(graph.nodes)}
    inside = {node for each in chosen for node in each.region.nodes}
    others = {node: why for node, why in left.items() if node not in inside and not _is_no_call(node)}
    return _OfGraph(chosen, dict(sorted(others.items(), key=lambda one: order[one[0]])), unchosen)


def _is_no_call(node: fx.Node) -> bool:
    """Return True if a node only looks at another: an attribute, an item, a size, or a number."""
    return what(node) in ("getitem", "size", "numel") or LAYER in node.meta
