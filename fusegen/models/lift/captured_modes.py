"""The graphs of a forward that torch.fx cannot trace, captured in training and in evaluation."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, fx, nn

from fusegen.models.lift.fx_graph import own
from fusegen.models.lift.modes import MODES, Mode, Modes, NoGraph, alike, traced_in_mode
from fusegen.models.lift.tracer import refusing
from fusegen.models.reader.call_structure import (
    PLAIN,
    Kind,
    Signature,
    Structure,
    bound,
    kinds,
    structure_of,
)
from fusegen.models.reader.capture import captured

RETURNED = "forward returns a {}, which its graph does not make"


def captured_in_each_mode(model: nn.Module, args: Sequence[Any], named: Mapping[str, Any]) -> Modes:
    """Return the graphs of a model's forward, as operators of its example arguments.

    Args:
        model: it.
        args: of its forward, by place.
        named: its other arguments.

    Raises:
        NoGraph: it draws random numbers that a graph would hold, changes attributes, or returns an object.
        Exception: what forward raises when it is traced.
    """
    forward = type(model).forward
    inputs, tensors = structure_of(bound(inspect.signature(forward), model, args, named))
    guards: dict[str, None] = {}
    outputs: dict[Mode, Structure] = {}

    def trace(enter: Mode, model: nn.Module, read: dict[str, bool]) -> fx.Graph:
        def run(given: Sequence[Tensor]) -> list[Any]:
            args, kwargs = inputs.value(given)
            outputs[enter], results = structure_of(forward(model, *args, **kwargs))
            return results

        with refusing():
            found = captured(model, tensors, run, read)
        guards.update(dict.fromkeys(found.guards))
        return found.graph

    (training, one), (evaluation, other) = (
        traced_in_mode(model, enter, functools.partial(trace, enter)) for enter in MODES
    )
    for each in (leaf for of in outputs.values() for leaf in of.leaves):
        if not isinstance(each, (Kind, *PLAIN)):
            raise NoGraph(RETURNED.format(type(each).__name__))
    pairs = zip(training.nodes, evaluation.nodes, strict=False)
    same = outputs[MODES[0]] == outputs[MODES[1]] and all(alike(*pair, ()) for pair in pairs)
    graphs, read = ((training,), ({},)) if same else ((training, evaluation), (one, other))
    for graph in graphs:
        graph.lint()
        own(graph, model)
    results = tuple(outputs[enter] for enter in MODES[: len(graphs)])
    conditions = " and ".join(f"({each})" for each in guards)
    signature = Signature(inputs, results, conditions, kinds(model), read)
    return Modes(graphs, ({},) * len(graphs), signature)
