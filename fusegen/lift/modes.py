"""The graph of a model's forward that holds in training and in evaluation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx, nn

from fusegen.lift.graph import Tracer
from fusegen.lift.record import Record, storage_of
from fusegen.lift.regions.examples import TENSOR
from fusegen.lift.regions.pointwise import CONSTANT

Mode = Callable[[nn.Module], nn.Module]
MODES: tuple[Mode, Mode] = (nn.Module.train, nn.Module.eval)
CALL = "call"  # the key of the call that made a tensor, as text
TRAINING = "training"  # the attribute of a module
RANDOM = frozenset("rand randn randint randperm normal bernoulli multinomial poisson uniform".split())
OTHER = "forward runs other operations in training than in evaluation"
FROZEN = "forward makes random numbers by {}, which the graph would hold as they are now"


class NoGraph(Exception):
    """A clause that says why no graph is the forward of a model."""


def traced_in_both_modes(model: nn.Module) -> fx.Graph:
    """The graph of a model's forward.

    A truth that is the mode itself, as in ``dropout(x, training=self.training)``, is read from the module.
    The model is left as it is.

    Args:
        model: it.

    Raises:
        NoGraph: other operations run in training, or a tensor is random.
        Exception: what forward raises when it is traced.
    """
    graphs = [_traced(model, enter) for enter in MODES]
    training, evaluation = (list(graph.nodes) for graph in graphs)
    if len(training) != len(evaluation):
        raise NoGraph(OTHER)
    for one, other in zip(training, evaluation, strict=True):
        _merge(one, other)
    whole: Any = graphs[0]
    whole.lint()
    whole.owning_module = model  # which fx types as a GraphModule; only its layers are looked up
    return graphs[0]


def _merge(one: fx.Node, other: fx.Node) -> None:
    """Read the mode where a node has it as an argument.

    Raises:
        NoGraph: the nodes differ otherwise.
    """
    if (one.op, one.target, one.name) != (other.op, other.target, other.name):
        raise NoGraph(OTHER)
    pairs = [(one.args, other.args), (tuple(one.kwargs.values()), tuple(other.kwargs.values()))]
    if one.kwargs.keys() != other.kwargs.keys() or any(len(a) != len(b) for a, b in pairs):
        raise NoGraph(OTHER)
    if all(repr(a) == repr(b) for a, b in pairs):
        return
    with one.graph.inserting_before(one):
        mode = one.graph.get_attr(TRAINING)
    args = tuple(_merged(a, b, mode) for a, b in zip(*pairs[0], strict=True))
    values = (_merged(a, b, mode) for a, b in zip(*pairs[1], strict=True))
    one.args, one.kwargs = args, dict(zip(one.kwargs, values, strict=True))


def _merged(one: Any, other: Any, mode: fx.Node) -> Any:
    if repr(one) == repr(other):
        return one
    if one is True and other is False:
        return mode
    raise NoGraph(OTHER)


def _traced(model: nn.Module, enter: Mode) -> fx.Graph:
    record = Record()
    with _in_mode(model, enter), _unchanged(model):
        with record:
            graph = Tracer().trace(model)
        for node in graph.nodes:
            if node.op == "get_attr":
                _keep(node, model, record)
    return graph


def _keep(node: fx.Node, model: nn.Module, record: Record) -> None:
    """Keep a tensor that forward made as it was traced.

    Raises:
        NoGraph: it holds random numbers.
    """
    name = str(node.target)
    if not name.startswith("_tensor_constant"):
        return
    tensor = getattr(model, name)
    made = record.made.get(storage_of(tensor))
    if made and made.function.removesuffix("_like") in RANDOM:
        raise NoGraph(FROZEN.format(made.function))
    node.meta[TENSOR] = tensor
    if made and made.call and " * " not in made.call:
        node.meta[CALL] = f"torch.{made.call}"
    if tensor.dim() == 0 and not tensor.is_complex() and tensor.dtype is not torch.bool:
        node.meta[CONSTANT] = made.value if made and made.value is not None else tensor.item()


@contextlib.contextmanager
def _in_mode(model: nn.Module, enter: Mode) -> Iterator[None]:
    """Sets the mode of all modules, and sets each back."""
    before = [(module, module.training) for module in model.modules()]
    enter(model)
    try:
        yield
    finally:
        for module, own in before:
            module.training = own


@contextlib.contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Keeps what forward sets on the modules from staying there."""
    places = [vars(module) for module in model.modules()]
    places += [own[name] for own in places for name in ("_parameters", "_buffers", "_modules")]
    before = [dict(place) for place in places]
    try:
        yield
    finally:
        for place, own in zip(places, before, strict=True):
            place.clear()
            place.update(own)
