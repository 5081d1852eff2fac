"""The graphs of a model's forward, captured in training and in evaluation."""

import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fusegen.models.lift.constructor_numbers import carried
from fusegen.models.lift.fx_graph import name_of, own
from fusegen.models.lift.known_sizes import Sizes
from fusegen.models.lift.merged_modes import alike, merge
from fusegen.models.lift.modes import MODES, Mode, Modes, NoGraph, Trace, Traced, traced_in_mode
from fusegen.models.lift.noted_arithmetic import noting_arithmetic
from fusegen.models.lift.noted_calls import Noting
from fusegen.models.lift.noted_reads import KEYS, Reads
from fusegen.models.lift.noted_settings import noting_autocast, noting_kinds
from fusegen.models.lift.refused_calls import refusing, refusing_decisions
from fusegen.models.reader.aten_calls import calls_of
from fusegen.models.reader.aten_table import IDENTITIES
from fusegen.models.reader.call_structure import (
    PLAIN,
    Kind,
    Signature,
    Structure,
    bound,
    kinds,
    layouts,
    names_by_place,
    of_any_dtype,
    structure_of,
)
from fusegen.models.reader.capture import Capture, captured
from fusegen.models.reader.unfixed_sizes import Unfixed

TRIVIAL = re.compile(r"0 <= L\['t\d+'\]\.size\(\)\[\d+\]")  # a guard that always holds
STRIDE = ".stride()"  # in guards on the layout of inputs
RETURNED = "forward returns a {}, which its graph does not make"
CASTS = frozenset("to type_as _to_copy".split())
Run = Callable[[Sequence[Tensor]], Sequence[Any]]


def captured_in_each_mode(model: nn.Module, args: Sequence[Any], named: Mapping[str, Any]) -> Modes:
    """Return the graphs of a model's forward, as operators of its example arguments.

    A truth that is the mode itself, as in ``dropout(x, training=self.training)``, is read from the module
    that runs the operation. The model is left as it is.

    Raises:
        NoGraph: it draws random numbers that a graph would hold, changes attributes, or returns an object.
        Exception: what forward raises.
    """
    forward = type(model).forward
    signature = inspect.signature(forward)
    inputs, tensors = structure_of(_arguments(signature, model, args, named))
    guards, names = dict[str, None](), names_by_place(signature, inputs)
    outputs, reads_kinds = dict[Mode, Structure](), False

    def trace(enter: Mode, model: nn.Module, read: dict[str, bool]) -> fx.Graph:
        def run(given: Sequence[Tensor]) -> list[Any]:
            nonlocal reads_kinds
            args, kwargs = inputs.value(given)
            with Noting() as noting, noting_autocast(noting), noting_kinds(noting, forward):
                outputs[enter], results = structure_of(forward(model, *args, **kwargs))
            reads_kinds |= noting.reads_kinds
            return results

        found = graph_of(model, tensors, run, read)
        guards.update(dict.fromkeys(found.guards))
        _name_inputs(found.graph, names)
        return found.graph

    found = _in_modes(model, lambda enter: functools.partial(trace, enter))
    results = [outputs[enter] for enter in MODES if enter in outputs]
    graphs, read = merged(found, is_one=results[0] == results[-1])
    for graph, result in zip(graphs, results, strict=False):
        _check(graph, result, model)
    casts = reads_kinds or any(_casts(node) for graph in graphs for node in graph.nodes)
    made = (tuple(results[: len(graphs)]), *_deciding(model, graphs, guards, casts=casts))
    return Modes(graphs, read, Signature(inputs if casts else of_any_dtype(inputs), *made, casts, names))


def _arguments(signature: inspect.Signature, model: nn.Module, args: Any, named: Any) -> Any:
    """Return the arguments of a forward by place and by name.

    Raises:
        TypeError: it takes others.
    """
    arguments = bound(signature, model, args, named)
    if arguments is None:
        raise TypeError("it takes other arguments")
    return arguments


def _deciding(
    model: nn.Module, graphs: Sequence[fx.Graph], guards: Iterable[str], *, casts: bool
) -> tuple[tuple[str, ...], Mapping[str, Kind]]:
    """Return the guards of graphs, and the kinds of parameters and buffers, that decide what they run."""
    is_laid_out = casts or any(_is_identity(node) for graph in graphs for node in graph.nodes)
    kept = (each for each in guards if not TRIVIAL.fullmatch(each) and (is_laid_out or STRIDE not in each))
    return tuple(kept), kinds(model) if casts else layouts(model) if is_laid_out else {}


def written_in_each_mode(model: nn.Module, values: Mapping[str, Any]) -> Modes:
    """Return the graphs of a model's forward as it is written, in both modes.

    Raises:
        NoGraph, Exception: as of `captured_in_each_mode`.
    """
    found = _in_modes(model, lambda enter: _as_written(values))
    made = [graph for graph, _ in found]
    first = [
        next(iter(graph.nodes)).meta for graph in made
    ]  # an input; one mode may read what no other does
    _note_reads(made, {key: {name for of in first for name in of.get(key, ())} for key in KEYS})
    graphs, read = merged(found, is_one=True)
    for graph in graphs:
        own(graph, model)
    return Modes(graphs, read)


def _note_reads(graphs: Sequence[fx.Graph], found: Mapping[str, Collection[str]]) -> None:
    """Let the inputs of graphs know of which tensors forward reads dtypes and dimensions."""
    for graph in graphs:
        for node in graph.find_nodes(op="placeholder"):
            node.meta |= {key: frozenset(names) for key, names in found.items() if names}


def _in_modes(model: nn.Module, trace: Callable[[Mode], Trace]) -> list[Traced]:
    """Return the graphs of training and of evaluation; one, where forward reads no mode in training."""
    training, evaluation = MODES
    first = traced_in_mode(model, training, trace(training))
    is_plain = all(type(each).train is nn.Module.train for each in model.modules())
    if not first[1] and is_plain:
        return [first]
    return [first, traced_in_mode(model, evaluation, trace(evaluation))]


def _as_written(values: Mapping[str, Any]) -> Trace:
    return lambda model, read: written(model, read, values)


def written(
    model: nn.Module,  # it
    read: dict[str, bool],  # takes the modules that read their mode
    values: Mapping[str, Any],  # the arguments, by name and in order
    label: str = "{}",  # the label of a number among them, by its name
) -> fx.Graph:
    """Return the graph of a forward as it is written: its inputs are the tensors among the arguments.

    Nothing is decided by sizes.
    """
    tensors = [name for name, value in values.items() if isinstance(value, Tensor)]
    numbers = {name: carried(label.format(name), value, {}) for name, value in values.items()}
    result: Structure | None = None
    sizes, reads = Sizes(), Reads(model)

    def run(given: Sequence[Tensor]) -> list[Any]:
        nonlocal result
        sizes.read = 0
        named = dict(zip(tensors, given, strict=True))
        arguments = {**numbers, **named}
        reads.begin(named)
        forward = type(model).forward
        with Noting(sizes, reads) as noting, noting_kinds(noting, forward), refusing_decisions():
            result, results = structure_of(forward(model, *arguments.values()))
        return results

    graph = graph_of(model, [values[name] for name in tensors], run, read, Unfixed).graph
    sizes.put_in(graph, model)
    assert result is not None
    _check(graph, result, model)
    _name_inputs(graph, tensors)
    _note_reads([graph], reads.found)
    [output] = graph.find_nodes(op="output")
    output.args = (result.value(output.args[0]),)
    return graph


def _name_inputs(graph: fx.Graph, names: Sequence[str]) -> None:
    """Give the inputs of a graph the names of a forward's arguments, where each is one."""
    for node, name in zip(graph.find_nodes(op="placeholder"), names, strict=False):
        node._rename(name)
        node.target = name


def graph_of(
    model: nn.Module,
    tensors: Sequence[Tensor],
    run: Run,
    read: dict[str, bool],
    shapes: type[ShapeEnv] = ShapeEnv,
) -> Capture:
    """Return the graph of a function that calls a model, with what its calls were given.

    Raises:
        Exception: what it raises.
    """
    with refusing(), noting_arithmetic():
        return captured(model, tensors, run, read, shapes)


def merged(
    found: Sequence[Traced], *, is_one: bool
) -> tuple[tuple[fx.Graph, ...], tuple[Mapping[str, bool], ...]]:
    """Return one graph for both modes, or that of each with the modes that modules have in it."""
    if len(found) == 1:
        return (found[0][0],), ()
    (training, one), (evaluation, other) = found
    pairs = zip(training.nodes, evaluation.nodes, strict=False)  # each graph ends with its only output
    if not (is_one and all(alike(*pair, {**one, **other}) for pair in pairs)):
        return (training, evaluation), (one, other)
    for pair in zip(training.nodes, evaluation.nodes, strict=True):
        merge(*pair)
    return (training,), ()


def _casts(node: fx.Node) -> bool:
    """Return True if an operator depends on dtypes or devices that a graph holds."""
    if not isinstance(node.target, OpOverload):
        return False
    given = (*node.args, *node.kwargs.values())
    return any(isinstance(each, torch.dtype | torch.device) for each in given) or name_of(node) in CASTS


def _is_identity(node: fx.Node) -> bool:
    """Return True if an operator hands on its argument because of the layout of the example."""
    if not isinstance(node.target, OpOverload) or name_of(node) not in IDENTITIES:
        return False
    calls = calls_of(node)
    return calls is not None and calls.made[0].is_same


def _check(graph: fx.Graph, result: Structure, model: nn.Module) -> None:
    """Refuse a graph whose result holds an object.

    Raises:
        NoGraph: it does.
    """
    own(graph, None)  # which lint would look for the tensors of forward in
    graph.lint()
    own(graph, model)
    for each in result.leaves:
        if not isinstance(each, (Kind, *PLAIN)):
            raise NoGraph(RETURNED.format(type(each).__name__))
