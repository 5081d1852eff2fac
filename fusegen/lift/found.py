"""The regions of a model that are worth a kernel, and why other operations are PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from fusegen.errors import NotAModel, Span
from fusegen.lift.graph import HOOKS, copied, what
from fusegen.lift.modes import Modes, NoGraph, traced_in_each_mode
from fusegen.lift.optional import left_out, require_default
from fusegen.lift.places import span_of, span_of_error
from fusegen.lift.regions.aliases import unsafe, writes
from fusegen.lift.regions.biases import split_biases
from fusegen.lift.regions.examples import propagate
from fusegen.lift.regions.partition import Region, partition
from fusegen.lift.regions.spec import RegionSpec, Source, convolved, refused, written
from fusegen.lift.regions.worth import traffic
from fusegen.lift.untraced import in_words

COMPILE = (
    'forward is traced without values; torch.compile(model, backend="fusegen") runs what depends on them'
)
INPUTS = "give inputs that it takes"
IN_PLACE = "use the form that makes a new tensor"
ALONE = "alone it is as fast in PyTorch as in a kernel"
SMALL = "it moves so few bytes that the call of a kernel takes longer"


@dataclass(frozen=True)
class Found:
    """The regions of a model.

    Attributes:
        name: of the model.
        model: it.
        modes: the graphs of its forward.
        chosen: the regions that are worth a kernel, in order.
        left: the calls that stay PyTorch's, in order, with a clause that says why.
        operations: copies of the graphs in which no region adds a bias: the model's own operations.
    """

    name: str
    model: nn.Module
    modes: Modes
    chosen: tuple[RegionSpec, ...]
    left: Mapping[fx.Node, str]
    operations: tuple[fx.Graph, ...] = ()


def found(model: nn.Module, inputs: Sequence[Any], source: str = "", least_passes: int = 2) -> Found:
    """The regions of a model.

    Args:
        model: it.
        inputs: of its forward.
        source: the name of the model in specs.
        least_passes: of eager over memory, from which on a region has a kernel.

    Raises:
        NotAModel: its forward cannot be traced, or cannot run on these inputs.
    """
    name = source or type(model).__name__
    refuse_hooks(model, name)
    modes = traced(model, name, inputs)
    for graph in modes.graphs:
        refuse_writes(graph)
        try:
            propagate(model, graph, inputs)
        except Exception as error:
            raise _failed(error, name, "forward cannot run on the example inputs", INPUTS) from None
    operations = tuple(map(copied, modes.graphs))
    own = Source(name, Path(), {}, {})
    if adds_bias_apart(inputs):
        for graph in modes.graphs:
            split_biases(graph, least_passes)
    regions = replace(regions_of(model, modes, own, least_passes), operations=operations)
    if not adds_bias_apart(inputs):
        return regions
    chosen = tuple(convolved(each, own) for each in regions.chosen)
    fronts = {node for each in chosen if each.front for node in each.front.calls}
    left = {node: why for node, why in regions.left.items() if node not in fronts}
    return replace(regions, chosen=chosen, left=left)


def adds_bias_apart(inputs: Sequence[Any]) -> bool:
    """True if PyTorch adds the bias of a convolution by a kernel of its own, as it does on CUDA."""
    return any(isinstance(each, Tensor) and each.is_cuda for each in inputs)


def traced(model: nn.Module, name: str, inputs: Sequence[Any]) -> Modes:
    """The graphs of a model's forward.

    Args:
        model: it.
        name: of it in a message.
        inputs: of its forward; other arguments have their defaults.

    Raises:
        NotAModel: there is none.
    """
    try:
        return traced_in_each_mode(model, left_out(model.forward, len(inputs)))
    except NoGraph as error:
        raise NotAModel(Span(name), why=str(error), remedy=COMPILE) from None
    except Exception as error:
        raise _failed(error, name, "forward cannot be traced", COMPILE) from None


def regions_of(model: nn.Module, modes: Modes, source: Source, least_passes: int = 2) -> Found:
    """The regions of graphs with example values.

    Args:
        model: the module of the graphs.
        modes: these.
        source: where they are from.
        least_passes: of eager over memory, from which on a region has a kernel.
    """
    each = [_regions_of(graph, source, least_passes) for graph in modes.graphs]
    chosen = tuple(region for regions, _ in each for region in regions)
    left = {node: why for _, others in each for node, why in others.items()}
    return Found(source.name, model, modes, chosen, left)


def _regions_of(
    graph: fx.Graph, source: Source, least_passes: int
) -> tuple[list[RegionSpec], dict[fx.Node, str]]:
    """The regions of one graph, and the calls that stay PyTorch's."""
    parts = partition(graph)
    chosen: list[RegionSpec] = []
    left = dict(parts.reasons)
    for region in parts.regions:
        why = _left_alone(region, least_passes)
        text = written(region, source) if not why else None
        why = why or (refused(text) if text else "")
        if text and not why:
            chosen.append(text)
        else:
            left |= dict.fromkeys(region.nodes, why)
    order = {node: place for place, node in enumerate(graph.nodes)}
    inside = {node for each in chosen for node in each.region.nodes}
    others = {node: why for node, why in left.items() if node not in inside and not _is_no_call(node)}
    return chosen, dict(sorted(others.items(), key=lambda one: order[one[0]]))


def _is_no_call(node: fx.Node) -> bool:
    """True if a node only looks at another: an attribute, an item, a size, or a number."""
    return what(node) in ("getitem", "size", "dim") or node.target in (
        getattr,
        torch.tensor,
        require_default,
    )


def _left_alone(region: Region, least_passes: int) -> str:
    """Why a region is not worth a kernel; empty where it is."""
    moved = traffic(region)
    if moved.is_worth_a_kernel or least_passes < 2:
        return ""
    return SMALL if moved.saved > 0 else ALONE


def refuse_writes(graph: fx.Graph) -> None:
    """Refuse writes in place that another form cannot replace.

    Raises:
        NotAModel: there is one.
    """
    for node in graph.nodes:
        why = unsafe(node)
        if why:
            place = " in place" if writes(node) else ""
            raise NotAModel(span_of(node), why=f"{what(node)}{place}: {why}", remedy=IN_PLACE)


def refuse_hooks(model: nn.Module, name: str) -> None:
    """Refuse hooks of modules inside of the model whose forward the graph takes apart.

    Raises:
        NotAModel: there is one.
    """
    for path, module in model.named_modules():
        is_leaf = type(module).__module__.startswith("torch.nn") and not isinstance(module, nn.Sequential)
        if path and not is_leaf and any(getattr(module, hooks) for hooks in HOOKS):
            why = f"{path or name} has hooks, which its graph does not run"
            raise NotAModel(Span(name), why=why, remedy="remove them, and register them on the result")


def _failed(error: Exception, name: str, what_failed: str, remedy: str) -> NotAModel:
    """An exception of the user's code as a sentence."""
    first = (str(error).strip().splitlines() or [""])[0]
    reason = f"it raises {type(error).__name__}" + f": {first}" * bool(first)
    span = span_of_error(error)
    why = f"{what_failed}, as {in_words(error) or reason}"
    return NotAModel(span if span.line else Span(name), why=why, remedy=remedy)
