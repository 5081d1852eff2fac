"""The graph of a model's forward in a mode, and the modules that read their mode in it."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from fusegen.models.lift.fx_graph import own
from fusegen.models.lift.merged_modes import CALL, TRAINING
from fusegen.models.lift.record import Record, storage_of
from fusegen.models.lift.refused_calls import random_states, replaced
from fusegen.models.lift.regions.aliases import follow_writes
from fusegen.models.lift.regions.pointwise import CONSTANT
from fusegen.models.lift.source_of_calls import note_source
from fusegen.models.reader.aten_calls import TRACING
from fusegen.models.reader.call_structure import Signature
from fusegen.models.reader.capture import TENSOR

Mode = Callable[[nn.Module], nn.Module]
Traced = tuple[fx.Graph, dict[str, bool]]
Trace = Callable[[nn.Module, dict[str, bool]], fx.Graph]
MODES: tuple[Mode, Mode] = (nn.Module.train, nn.Module.eval)
TRACES = 4  # in each of which a forward that draws random numbers does so; other threads may in some
RANDOM = frozenset("rand randn randint randperm normal bernoulli multinomial poisson uniform".split())
STORED = "forward sets the attribute {} to a tensor, which its graph does not"
CHANGED = "forward changes the attribute {}, which its graph does not"
HELD = ("_buffers", "_parameters")  # whose tensors a graph reads, and writes
FROZEN = "forward makes random numbers by {}, which the graph would hold as they are now"


class NoGraph(Exception):
    """A clause that says why no graph is the forward of a model."""


@dataclass(frozen=True)
class Modes:
    """The graphs of a forward."""

    # one that holds in training and in evaluation, or that of training and that of evaluation
    graphs: tuple[fx.Graph, ...]
    # of each of two graphs the modules that read their mode in it, by path, with that mode
    read: tuple[Mapping[str, bool], ...] = ()
    # how the graphs are called; None where their inputs are forward's arguments
    signature: Signature | None = None


def traced_in_mode(model: nn.Module, enter: Mode, trace: Trace) -> Traced:
    """The graph of a forward in a mode, and the modules that read their mode in it, with that mode."""
    for _ in range(TRACES):
        states = random_states()
        found = _traced_once(model, enter, trace)
        drawn = [name for name, state in random_states().items() if state != states.get(name, state)]
        if not drawn:
            return found
    raise NoGraph(FROZEN.format(drawn[0]))


def _traced_once(model: nn.Module, enter: Mode, trace: Trace) -> Traced:
    record = Record()
    with TRACING, _in_mode(model, enter), _unchanged(model) as before:
        with _read_modes(model) as read, record:
            graph = trace(model, read)
        _refuse_stored(model)
        _refuse_changed(model, before)
        own(graph, model)
        follow_writes(graph)
        own(graph, None)  # which lint would look for the tensors of forward in
        for node in graph.nodes:
            if node.op == "get_attr":
                _keep(node, model, record)
        note_source(graph, model)
    return graph, read


def _set_mode(module: nn.Module, mode: object) -> None:
    vars(module)[TRAINING] = mode


@contextlib.contextmanager
def _read_modes(model: nn.Module) -> Iterator[dict[str, bool]]:
    """Notes the modules of a model that read their mode, by path."""
    paths = {id(module): path for path, module in model.named_modules()}
    read: dict[str, bool] = {}

    def get(module: nn.Module) -> bool:
        if id(module) in paths:
            read.setdefault(paths[id(module)], vars(module)[TRAINING])
        return bool(vars(module)[TRAINING])

    with replaced(nn.Module, TRAINING, property(get, _set_mode)):
        yield read


def _refuse_stored(model: nn.Module) -> None:
    """Refuse a forward that leaves values of its graph on modules, where a caller may look for tensors.

    Raises:
        NoGraph: there is one.
    """
    for path, module in model.named_modules():
        own = {name: value for name, value in vars(module).items() if name != "_buffers"}
        for name, value in {**own, **module._buffers}.items():
            if any(isinstance(each, FakeTensor) for each in tree_leaves(value)):
                raise NoGraph(STORED.format(f"{path}.{name}".lstrip(".")))


def _refuse_changed(model: nn.Module, before: Mapping[int, Mapping[str, object]]) -> None:
    """Refuse a forward that changes attributes, which its next call may read.

    Raises:
        NoGraph: there is one.
    """
    for path, module in model.named_modules():
        for name, state in before[id(module)].items():
            if name not in HELD and state is not None and _state(vars(module).get(name)) != state:
                raise NoGraph(CHANGED.format(f"{path}.{name}".lstrip(".")))


def _state(value: Any) -> object:
    """Return a value that differs where a forward changed an attribute; None where that is not known."""
    if isinstance(value, Tensor):
        return id(value), 0 if value.is_inference() else value._version
    if isinstance(value, list | dict):
        items = value.values() if isinstance(value, dict) else value
        return [id(each) if isinstance(each, list | dict) else _state(each) for each in items]
    if isinstance(value, set):
        return len(value)
    return repr(value) if isinstance(value, bool | int | float | str) else None


def _keep(node: fx.Node, model: nn.Module, record: Record) -> None:
    """Keep a tensor that forward made as it was traced.

    Raises:
        NoGraph: it holds random numbers.
    """
    name = str(node.target)
    if not name.startswith("_tensor_constant"):
        return
    tensor = node.meta.get(TENSOR)
    tensor = getattr(model, name) if tensor is None else tensor
    made = record.made.get(storage_of(tensor))
    if made and made.function.removesuffix("_like") in RANDOM:
        raise NoGraph(FROZEN.format(made.function))
    node.meta[TENSOR] = tensor
    if made and made.call and " * " not in made.call:
        node.meta[CALL] = f"torch.{made.call}"
    if made and made.value is not None:
        node.meta[CONSTANT] = made.value
    elif not (tensor.dim() or tensor.is_meta or tensor.is_complex() or tensor.dtype is torch.bool):
        node.meta[CONSTANT] = tensor.item()


@contextlib.contextmanager
def _in_mode(model: nn.Module, enter: Mode) -> Iterator[None]:
    """Set the mode of all modules, and sets each back."""
    before = [(module, module.training) for module in model.modules()]
    enter(model)
    try:
        yield
    finally:
        for module, own in before:
            module.training = own


@contextlib.contextmanager
def _unchanged(model: nn.Module) -> Iterator[Mapping[int, Mapping[str, object]]]:
    """Keep what forward sets on the modules from staying there; has their states, by their ids."""
    modules = [*model.modules()]
    places = [vars(module) for module in modules]
    parts = [own[name] for own in places for name in ("_parameters", "_buffers", "_modules")]
    places += [each for each in parts if isinstance(each, dict)]  # those of TorchScript are not
    before = [dict(place) for place in places]
    states = {id(each): {name: _state(value) for name, value in vars(each).items()} for each in modules}
    try:
        yield states
    finally:
        for place, own in zip(places, before, strict=True):
            place.clear()
            place.update(own)
