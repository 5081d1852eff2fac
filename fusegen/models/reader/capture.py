"""A forward as a graph of operators, traced on tensors without memory.

Layers of torch.nn stay calls, with their parameters, hooks and modes. Sizes are symbols, and what forward
decides by them is a guard.
"""

import contextlib
import functools
import re
import threading
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._dynamo.source import LocalSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental import _config, proxy_tensor
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nn.modules.batchnorm import _BatchNorm

from fusegen.models.reader.layer_calls import twin
from fusegen.models.reader.recorded_calls import called
from fusegen.models.reader.recurrent import recurrent

TENSOR = "tensor"  # the key of a tensor that tracing made, which is no attribute of the module
STACK = "nn_module_stack"  # that of the modules around a node, as torch.fx and TorchDynamo have it
NO_GRAD = "no_grad"  # the key of nodes that run without gradients
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
OFFSET = "storage_offset"  # which decides nothing
NUMBER = re.compile(r"_\d+$")  # behind the name of a node
COPIES = ("lift_fresh", "lift_fresh_copy", "detach_")  # of constants
VIEWS = ("view", "expand", "unsqueeze", "select", "slice", "detach", "to")
Forward = Callable[[Sequence[Tensor]], Sequence[Any]]


@dataclass(frozen=True)
class Capture:
    """The graph of a forward."""

    graph: fx.Graph  # it; its inputs are tensors, and its result is a tuple
    guards: tuple[str, ...]  # conditions on the sizes of the inputs, in Python


def is_layer(module: nn.Module) -> bool:
    """Return True for a layer of torch.nn, which is called as a whole."""
    return module.__module__.startswith(("torch.nn", "torch.ao.nn")) and not isinstance(
        module, nn.Sequential
    )


def captured(
    model: nn.Module,  # the owner of parameters and layers
    inputs: Sequence[Tensor],  # examples
    forward: Forward,  # the function, from tensors to tensors and sizes
    # the modules that have read their mode so far; layers do so when they are called
    read: dict[str, bool],
    shapes: type[ShapeEnv] = ShapeEnv,  # `Unfixed` keeps the sizes that the example has to have as symbols
) -> Capture:
    """Return the graph of a function that calls a model.

    A size of one is a symbol, too, unless the function then raises: it may broadcast that dimension.

    Raises:
        Exception: whatever the function raises.
    """
    ones = [{(k, dim) for dim, size in enumerate(of.shape) if size == 1} for k, of in enumerate(inputs)]
    every = frozenset(one for each in ones for one in each)
    behind = frozenset((place, dim) for place, dim in every if dim)
    for fixed in dict.fromkeys((frozenset(), behind)):
        if fixed != every:
            with contextlib.suppress(Exception):
                return _captured(model, inputs, forward, read, (fixed, shapes))
    return _captured(model, inputs, forward, read, (every, shapes))


def _captured(
    model: nn.Module,
    inputs: Sequence[Tensor],
    forward: Forward,
    read: dict[str, bool],
    sizes: tuple[Container[Any], type[ShapeEnv]],
) -> Capture:
    """Return the graph of a function, with some sizes fixed, by the places of tensors and dimensions."""
    fixed, kind = sizes
    shapes = kind(duck_shape=False)
    mode = FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True, static_shapes=True)

    def run(*given: Tensor) -> tuple[Any, ...]:
        tracer: Any = proxy_tensor.get_proxy_mode()
        tracer.tracer._record_forward_stack_traces_only = False  # but functions that forward calls, too
        tracer.tracer.call_module = _Layers(model, tracer.tracer, mode, read)
        return tuple(forward(given))

    trace = proxy_tensor.make_fx(
        run, pre_dispatch=True, _allow_non_fake_inputs=True, record_stack_traces=True
    )
    # a size of one is no case of its own, unless forward asks; but it decides the layout of channels last
    settings: Any = _config
    script: Any = torch.jit
    is_plain = all(each.is_contiguous() for each in inputs)
    with torch.enable_grad(), settings.patch(backed_size_oblivious=is_plain):
        fakes: Any = [_fake(mode, place, each, fixed) for place, each in enumerate(inputs)]
        with mode, script.optimized_execution(should_optimize=False):  # that detaches
            made = trace(*fakes)
        sources = [LocalSource(f"t{place}") for place in range(len(fakes))]
        guards = shapes.produce_guards(fakes, sources, ignore_static=False)
    _name(made, model)
    _fold(made.graph)
    _number(made.graph)
    return Capture(made.graph, tuple(each for each in guards if OFFSET not in each))


def _fake(mode: FakeTensorMode, place: int, tensor: Tensor, fixed: Container[Any]) -> Tensor:
    """Return a tensor without memory, whose sizes are symbols but for zero and those that are fixed."""
    kinds = [DimDynamic.STATIC if (place, k) in fixed else DimDynamic.DYNAMIC for k in range(tensor.dim())]
    context: Any = StatelessSymbolicContext(
        dynamic_sizes=kinds,
        dynamic_strides=[DimDynamic.INFER_STRIDE] * tensor.dim(),
        constraint_sizes=[None] * tensor.dim(),
    )
    return mode.from_tensor(
        tensor.detach(), static_shapes=False, source=LocalSource(f"t{place}"), symbolic_context=context
    ).requires_grad_(tensor.requires_grad)


def without_memory(mode: FakeTensorMode, layer: nn.Module, args: Any, kwargs: Any) -> Any:
    """Call a layer with parameters and buffers that have no memory: nothing real is written to."""
    if (result := recurrent(layer, args, kwargs)) is not None:
        return result
    other = twin(layer)
    vars(other).update({hooks: {} for hooks in HOOKS})  # which are for real tensors
    if (
        isinstance(layer, _BatchNorm) and layer.momentum is None
    ):  # then it reads how many batches there were
        vars(other)["momentum"] = 0.0
    tensors = (*layer.named_parameters(), *layer.named_buffers())
    state: dict[str, Tensor] = {name: mode.from_tensor(tensor) for name, tensor in tensors}
    return torch.func.functional_call(other, state, args, kwargs, tie_weights=False)


class _Called(nn.Module):
    """A layer whose call is no dead code, as it may have hooks and statistics."""

    _is_impure = True


class _Layers:
    """Records the calls of a model's layers, and looks into none; other nodes know their modules."""

    def __init__(self, model: nn.Module, tracer: Any, mode: FakeTensorMode, read: dict[str, bool]) -> None:
        self.paths = {id(module): path for path, module in model.named_modules() if path}
        self.stack: dict[str, tuple[str, type]] = {}
        self.tracer, self.mode, self.read = tracer, mode, read
        self.thread, self.is_inside = threading.get_ident(), False

    def __call__(
        self, layer: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a module; layers of the model, in the thread that traces, are recorded."""
        is_here = threading.get_ident() == self.thread and not self.is_inside
        path = self.paths.get(id(layer))
        if not is_here or path is None:
            return forward(*args, **kwargs)
        if not is_layer(layer):
            return self._inside(path, layer, lambda: forward(*args, **kwargs))
        shapes: Any = self.mode.shape_env
        before, self.is_inside = dict(self.read), True
        target = path.replace(".", "/")
        self.tracer.root._modules[target] = _Called()
        self.tracer.graph.owning_module = self.tracer.root
        try:  # what a layer decides by sizes it decides again in each call
            with shapes.suppress_guards():
                run = functools.partial(without_memory, self.mode, layer, args, kwargs)
                return called(self.tracer, ("call_module", target), (args, kwargs), run)
        finally:  # its error may be one that the model knows
            self.is_inside = False
            self.read.clear()
            self.read.update(before)  # and in the modes of its own layers

    def _inside(self, path: str, module: nn.Module, forward: Callable[[], Any]) -> Any:
        """Call the forward of a module, whose nodes then know what is around them."""
        outside, last = self.stack, self.tracer.graph._root.prev
        self.stack = {**outside, path: (path, type(module))}
        try:
            return forward()
        finally:
            node = self.tracer.graph._root.prev
            while node is not last:
                node.meta.setdefault(STACK, self.stack)
                node = node.prev
            self.stack = outside


def _name(made: fx.GraphModule, model: nn.Module) -> None:
    """Give the nodes of a graph the names of the model's parameters, buffers and layers."""
    every = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    kept = (
        (f"{path}.{name}".lstrip("."), value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor) and "/" not in name
    )
    names = {id(tensor): name for name, tensor in (*kept, *reversed(every))}
    first: dict[str, fx.Node] = {}
    for node in [*made.graph.nodes]:
        if node.op == "call_module":
            node.target = node.target.replace("/", ".")
        if node.op == "get_attr":
            tensor = getattr(made, node.target)
            if id(tensor) not in names:
                node.meta[TENSOR] = tensor
                continue
            node.target = names[id(tensor)]
            node._rename(node.target.replace(".", "_"))
            if first.setdefault(node.target, node) is not node:
                node.replace_all_uses_with(first[node.target])
                made.graph.erase_node(node)


def _number(graph: fx.Graph) -> None:
    """Number the nodes of each name from the first, as those that are gone have had numbers, too."""
    names: Any = fx.graph._Namespace()
    for node in graph.nodes:
        node.name = names.create_name(NUMBER.sub("", node.name), node)


def _fold(graph: fx.Graph) -> None:
    """Take out copies of constants, and switches of gradients, which nodes then know of."""
    has_gradients = True
    for node in [*graph.nodes]:
        if not has_gradients:
            node.meta[NO_GRAD] = True
        name = node.target.__name__ if callable(node.target) else ""
        if name == "_set_grad_enabled":
            has_gradients = bool(node.args[0])
            graph.erase_node(node)
        elif name.partition(".")[0] in COPIES and node.args[0].op == "get_attr" and not _is_written(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _is_written(node: fx.Node) -> bool:
    """Return True if an operator writes to a node, or to a view of it."""
    for user in node.users:
        name = str(getattr(user.target, "__name__", user.target)).partition(".")[0]
        if (name.endswith("_") and name not in COPIES) or (name in VIEWS and _is_written(user)):
            return True
    return False
