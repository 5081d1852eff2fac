"""The operators of ATen that a node of a graph runs, before autograd takes them apart.

A node is run on tensors without memory, of the sizes of its example values, and the operators are recorded
with their arguments bound by their schemas: names, positions and defaults of functions, methods and modules
are gone.
"""

import functools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import SymFloat, SymInt, Tensor, fx, nn
from torch._ops import OpOverload
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from fusegen.models.reader.operator_call import Call, Calls, Place, Result

NO_OPERATIONS = frozenset("_assert_tensor_metadata _set_grad_enabled sym_size lift_fresh".split())
UNUSUAL = 1_000_003  # a number that no call has as a constant
MOST = 4096  # nodes whose operators are remembered


# of the one thread that replaces parts of PyTorch, as torch.fx replaces nn.Module.__call__ while it traces
TRACING = threading.RLock()
_known: dict[tuple[object, str], Calls | None] = {}  # of nodes that were read, by what decides them


def value_of(node: fx.Node) -> Any:
    """Return the example value of a node; None where it has none."""
    return node.meta.get("val")


def hint(size: int | SymInt) -> int:
    """Return a size of the example; a symbolic one stays symbolic, as no guard is put on it."""
    return int(size.node.hint) if isinstance(size, SymInt) and size.node.hint is not None else int(size)


def layer_of(node: fx.Node) -> nn.Module | None:
    """Return the layer that a node calls."""
    owner = node.graph.owning_module
    if node.op != "call_module" or owner is None:
        return None
    return owner.get_submodule(str(node.target))


def calls_of(node: fx.Node) -> Calls | None:
    """Return the operators that a node with example values runs; None where they are not known.

    Of a layer with parameters, buffers or layers of its own they are not: it is called as a whole.
    """
    if isinstance(node.target, OpOverload):
        return _bound(node, node.target)
    function, key, shown = _function(node)
    values = {each: value_of(each) for each in node.all_input_nodes}
    is_known = all(each is not None for each in values.values())
    if (
        function is None
        or not is_known
        or not any(isinstance(each, Tensor) for each in tree_leaves([*values.values()]))
    ):
        return None  # a call that reads no tensor may be one that changes a state of PyTorch
    places: Any = {each: Place(number) for number, each in enumerate(values)}.__getitem__
    given = fx.map_arg((node.args, node.kwargs), places)
    text = repr((given, [*map(_kind, values.values())], shown))
    with TRACING:
        if len(_known) > MOST:
            _known.clear()
        if (key, text) not in _known:
            _known[key, text] = _recorded(function, given, [*values.values()])
        return _known[key, text]


def calls_in(function: Callable[..., Any], tensors: Sequence[Tensor]) -> Calls | None:
    """Return the operators that a function runs on tensors without memory; None where it raises."""
    places = tuple(map(Place, range(len(tensors))))
    with TRACING:
        return _recorded(function, (places, {}), [*tensors])


def _function(node: fx.Node) -> tuple[Callable[..., Any] | None, object, object]:
    """Return the function that a node calls, what tells it from others, and the numbers that decide it."""
    layer = layer_of(node)
    if layer is not None:
        kind = type(layer)
        is_whole = layer._parameters or layer._buffers or layer._modules
        if is_whole or not kind.__module__.startswith("torch.nn"):
            return None, None, None
        shown = {name: value for name, value in vars(layer).items() if not name.startswith("_")}
        return functools.partial(kind.forward, layer), kind, shown
    if node.op == "call_method":
        name = str(node.target)
        return lambda self, *args, **kwargs: getattr(self, name)(*args, **kwargs), name, None
    return (
        (node.target if node.op == "call_function" and callable(node.target) else None),
        node.target,
        None,
    )


def _kind(value: Any) -> object:
    """Return what of a value decides the operators that read it."""
    if isinstance(value, Tensor):
        return [*map(str, value.shape)], [*map(str, value.stride())], value.dtype
    return [*map(_kind, value)] if isinstance(value, tuple | list) else str(value)


def _recorded(function: Callable[..., Any], given: Any, values: list[Any]) -> Calls | None:
    """Run a function of places and return the operators that it runs; None where it raises."""
    log = logging.getLogger(fake_tensor.__name__)  # which logs a stack trace for each error
    before, log.disabled = log.disabled, True

    def run(*inputs: Any) -> Any:
        args, kwargs = tree_map_only(Place, lambda each: inputs[each.number], given)
        return function(*args, **kwargs)

    try:
        with (
            FakeTensorMode(allow_non_fake_inputs=True),
            torch.no_grad(),
            torch.autocast("cpu", enabled=False),
        ):
            inputs = [tree_map(functools.partial(_alike, place), each) for place, each in enumerate(values)]
            made = make_fx(run, pre_dispatch=True, _allow_non_fake_inputs=True)(*inputs)
    except Exception:  # of whatever function a user calls
        return None
    finally:
        log.disabled = before
    found = _calls(made.graph, inputs)
    numbers = {place for place, each in enumerate(inputs) if type(each) in (int, float)}
    read = {
        each.number for call in found.made for each in call.arguments.values() if isinstance(each, Place)
    }
    return found if numbers <= read else None  # a number that is read otherwise would be a constant


def _alike(place: int, value: Any) -> Any:
    """Return a tensor like a value, without memory; for a number one that no other place has."""
    if isinstance(value, Tensor):
        sizes, strides = ([*map(hint, each)] for each in (value.shape, value.stride()))
        return torch.empty_strided(sizes, strides, dtype=value.dtype)
    if isinstance(value, bool) or not isinstance(value, int | float | SymInt | SymFloat):
        return value
    return UNUSUAL + place if isinstance(value, int | SymInt) else UNUSUAL + place + 0.5


def _calls(graph: fx.Graph, inputs: Sequence[Any]) -> Calls:
    """Return the calls of a graph of operators, whose inputs are given."""
    nodes = [node for node in graph.nodes if node.op == "placeholder"]
    is_plain = len(nodes) == len(inputs)  # a tuple is a node for each item
    known: dict[fx.Node, Any] = {node: Place(k) for k, node in enumerate(nodes)} if is_plain else {}
    numbers = {each: Place(k) for k, each in enumerate(inputs) if isinstance(each, int | float)}
    made: list[Call] = []

    def read(each: Any) -> Any:
        if isinstance(each, fx.Node):
            return known.get(each, ...)  # which is no number
        return numbers.get(each, each) if type(each) in (int, float) else each

    for node in graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            continue
        if node.target._schema.name.rpartition("::")[2] in NO_OPERATIONS:
            known[node] = known.get(next(iter(node.all_input_nodes), node), ...)
            continue
        args, kwargs = fx.node.map_aggregate((node.args, node.kwargs), read)
        known[node] = Result(len(made))
        made.append(Call(node.target, args, kwargs, _is_same(node)))
    [output] = (node for node in graph.nodes if node.op == "output")
    result = known.get(output.args[0], ...) if isinstance(output.args[0], fx.Node) else ...
    return Calls(tuple(made), result if result is not ... else None)


def _bound(node: fx.Node, overload: OpOverload) -> Calls:
    """Return the call of a node that is one of an operator."""
    places: Any = {each: Place(number) for number, each in enumerate(node.all_input_nodes)}.__getitem__
    args, kwargs = fx.map_arg((node.args, node.kwargs), places)
    is_tensor = isinstance(value_of(node), Tensor)
    return Calls((Call(overload, args, kwargs, _is_same(node)),), Result(0) if is_tensor else None)


def _is_same(node: fx.Node) -> bool:
    """Return True if a node's value has the dtype, the sizes and the strides of its first argument."""
    of = node.args[0] if node.args else None
    one, other = (value_of(each) if isinstance(each, fx.Node) else None for each in (node, of))
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one.dim() != other.dim():
        return False
    pairs = [*zip(one.shape, other.shape, strict=True), *zip(one.stride(), other.stride(), strict=True)]
    return one.dtype == other.dtype and all(statically_known_true(a == b) for a, b in pairs)
