"""The graphs of a model with example values, or a sentence that says why there are none."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import fx, nn

from fusegen.errors import NotAModel, Span
from fusegen.models.lift.captured_modes import captured_in_each_mode, written, written_in_each_mode
from fusegen.models.lift.fx_graph import HOOKS, own, what
from fusegen.models.lift.modes import Modes, NoGraph, traced_in_mode
from fusegen.models.lift.places import span_of, span_of_error
from fusegen.models.lift.regions.aliases import unsafe, writes
from fusegen.models.lift.regions.examples import Failed, check_replaced, raised, stop_gradients
from fusegen.models.lift.untraced import Lost, in_a_line, in_words

COMPILE = (
    'forward is traced without values; torch.compile(model, backend="fusegen") runs what depends on them'
)
TRACED, RUNS = "forward cannot be traced", "forward cannot run on the example inputs"
INPUTS, RUN = "give inputs that it takes", "make it run by itself first"
ARGUMENT = "forward.{}"  # the label of a number among the arguments of a whole model
IN_PLACE = "use the form that makes a new tensor"
Inputs = Sequence[Any] | Mapping[str, Any]  # of a forward, by place or by name


def with_examples(model: nn.Module, name: str, inputs: Inputs) -> Modes:
    """Return the graphs of a model's forward with the example values of their nodes.

    Raises:
        NotAModel: there is none.
    """
    args, kwargs = ((), inputs) if isinstance(inputs, Mapping) else (inputs, {})
    with _refusing(model, name, args, kwargs):
        modes = captured_in_each_mode(model, args, kwargs)
    return _checked(modes, name)


def as_written(model: nn.Module, name: str, values: Mapping[str, Any]) -> Modes:
    """Return the graphs of a forward as it is written, whose inputs are its arguments, by name.

    Raises:
        NotAModel: there is none.
    """
    with _refusing(model, name, (), values, remedy=RUN):
        modes = written_in_each_mode(model, values)
    return _checked(modes, name)


def as_constructed(model: nn.Module, name: str, values: Mapping[str, Any]) -> fx.Graph:
    """Return the graph of a forward as it is written, in the mode that the model is in.

    Numbers among its arguments have labels such as ``forward.scale``.

    Raises:
        NotAModel: there is none.
    """
    with _refusing(model, name, (), values, remedy=RUN):
        trace = lambda one, read: written(one, read, values, ARGUMENT)  # noqa: E731
        graph, _ = traced_in_mode(model, lambda one: one, trace)
    own(graph, model)
    return graph


def _checked(modes: Modes, name: str) -> Modes:
    """Return graphs whose writes in place another form replaces, without what is made without gradients."""
    for graph in modes.graphs:
        refuse_writes(graph)
        with _refusing_inputs(name):
            check_replaced(graph)
        stop_gradients(graph)
    return modes


@contextlib.contextmanager
def _refusing(
    model: nn.Module, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], remedy: str = INPUTS
) -> Iterator[None]:
    """Refuse a model for which there is no graph."""
    try:
        yield
    except NoGraph as error:
        raise NotAModel(Span(name), why=str(error), remedy=COMPILE) from None
    except (Exception, Lost) as error:
        usual = None if in_words(error) else raised(model, args, kwargs)  # without symbols for sizes
        what_failed, remedy = (TRACED, COMPILE) if usual is None else (RUNS, remedy)
        raise _failed(usual or error, span_of_error(usual or error), name, what_failed, remedy) from None


@contextlib.contextmanager
def _refusing_inputs(name: str) -> Iterator[None]:
    """Refuse a model whose graph does not run on the example inputs."""
    try:
        yield
    except Failed as failed:
        raise _failed(failed.error, span_of(failed.node), name, RUNS, INPUTS) from None


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


def _failed(error: BaseException, span: Span, name: str, what_failed: str, remedy: str) -> NotAModel:
    """Return an exception of the user's code as a sentence."""
    why = f"{what_failed}, as {in_words(error) or f'it raises {in_a_line(error)}'}"
    return NotAModel(span if span.line else Span(name), why=why, remedy=remedy)
