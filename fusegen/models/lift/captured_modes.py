"""The graphs of a forward that torch.fx cannot trace, captured in training and in evaluation."""

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, fx, nn

from fusegen.models.lift.fx_graph import own
from fusegen.models.lift.merged_modes import alike
from fusegen.models.lift.modes import MODES, Mode, Modes, NoGraph, traced_in_mode
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

    Raises:
        NoGraph: it draws random numbers that a graph would hold, changes attributes, or returns an object.
        Exception: what forward raises.
    """
    forward = type(model).forward
    arguments = bound(inspect.signature(forward), model, args, named)
    if arguments is None:
        raise TypeError("it takes other arguments")
    inputs, tensors = structure_of(arguments)
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

    found = [traced_in_mode(model, enter, functools.partial(trace, enter)) for enter in MODES]
    (training, one), (evaluation, other) = found
    results = [outputs[enter] for enter in MODES]
    is_one = results[0] == results[1] and _is_one(training, evaluation)
    graphs, read = ((training,), ({},)) if is_one else ((training, evaluation), (one, other))
    for graph, result in zip(graphs, results, strict=False):
        _check(graph, result, model)
    signature = Signature(inputs, tuple(results[: len(graphs)]), tuple(guards), kinds(model), read)
    return Modes(graphs, ({},) * len(graphs), signature)


def _is_one(training: fx.Graph, evaluation: fx.Graph) -> bool:
    """Return True if two graphs make the same calls."""
    pairs = zip(training.nodes, evaluation.nodes, strict=False)  # each graph ends with its only output
    return all(alike(*pair, ()) for pair in pairs)


def _check(graph: fx.Graph, result: Structure, model: nn.Module) -> None:
    """Refuse a graph whose result holds an object.

    Raises:
        NoGraph: it does.
    """
    graph.lint()
    own(graph, model)
    for each in result.leaves:
        if not isinstance(each, (Kind, *PLAIN)):
            raise NoGraph(RETURNED.format(type(each).__name__))
