"""The graphs of a model with example values, or a sentence that says why there are none."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, fx, nn

from fusegen.errors import NotAModel, Span
from fusegen.models.lift.captured_modes import captured_in_each_mode
from fusegen.models.lift.fx_graph import HOOKS, what
from fusegen.models.lift.modes import Modes, NoGraph, traced_in_each_mode
from fusegen.models.lift.optional import left_out
from fusegen.models.lift.places import span_of, span_of_error
from fusegen.models.lift.regions.aliases import unsafe, writes
from fusegen.models.lift.regions.examples import Failed, check_replaced, propagate, stop_gradients
from fusegen.models.lift.untraced import in_a_line, in_words
from fusegen.models.reader.call_structure import PLAIN

COMPILE = (
    'forward is traced without values; torch.compile(model, backend="fusegen") runs what depends on them'
)
CASTS = frozenset("to type type_as float half bfloat16 double".split())  # methods of a tensor
INPUTS = "give inputs that it takes"
IN_PLACE = "use the form that makes a new tensor"


def with_examples(model: nn.Module, name: str, inputs: Sequence[Any] | Mapping[str, Any]) -> Modes:
    """Return the graphs of a model's forward with the example values of their nodes.

    Those of torch.fx keep the model's calls of functions. It traces no forward that reads sizes, and none
    with structures of tensors: such graphs are captured, as operators, and so are those that cast.
    """
    plain = (*PLAIN, Tensor)
    if isinstance(inputs, Mapping) or not all(isinstance(each, plain) for each in inputs):
        return _captured(model, name, inputs)
    try:
        modes = traced(model, name, inputs)
    except NotAModel:
        with contextlib.suppress(NotAModel):
            return _captured(model, name, inputs)
        raise
    if any(_casts(node) for graph in modes.graphs for node in graph.nodes):
        with contextlib.suppress(NotAModel):
            return _captured(model, name, inputs)
    for graph in modes.graphs:
        refuse_writes(graph)
        with _refusing_inputs(name):
            propagate(model, graph, inputs)
    return modes


def _casts(node: fx.Node) -> bool:
    """Tell if a node of a graph of torch.fx casts, which hands on its argument for some dtypes only."""
    return node.op == "call_method" and node.target in CASTS


def _captured(model: nn.Module, name: str, inputs: Sequence[Any] | Mapping[str, Any]) -> Modes:
    """Return the captured graphs of a model's forward.

    Raises:
        NotAModel: there is none.
    """
    args, kwargs = ((), inputs) if isinstance(inputs, Mapping) else (inputs, {})
    with _refusing(name):
        modes = captured_in_each_mode(model, args, kwargs)
    for graph in modes.graphs:
        refuse_writes(graph)
        with _refusing_inputs(name):
            check_replaced(graph)
        stop_gradients(graph)
    return modes


def traced(model: nn.Module, name: str, inputs: Sequence[Any]) -> Modes:
    """Return the graphs of a model's forward; arguments that are no inputs have their defaults.

    Raises:
        NotAModel: there is none.
    """
    with _refusing(name):
        return traced_in_each_mode(model, left_out(model.forward, len(inputs)))


@contextlib.contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Refuse a model for which there is no graph."""
    try:
        yield
    except NoGraph as error:
        raise NotAModel(Span(name), why=str(error), remedy=COMPILE) from None
    except Exception as error:
        raise _failed(error, span_of_error(error), name, "forward cannot be traced", COMPILE) from None


@contextlib.contextmanager
def _refusing_inputs(name: str) -> Iterator[None]:
    """Refuse a model whose graph does not run on the example inputs."""
    try:
        yield
    except Failed as failed:
        what_failed, span = "forward cannot run on the example inputs", span_of(failed.node)
        raise _failed(failed.error, span, name, what_failed, INPUTS) from None


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


def _failed(error: Exception, span: Span, name: str, what_failed: str, remedy: str) -> NotAModel:
    """Return an exception of the user's code as a sentence."""
    why = f"{what_failed}, as {in_words(error) or f'it raises {in_a_line(error)}'}"
    return NotAModel(span if span.line else Span(name), why=why, remedy=remedy)
