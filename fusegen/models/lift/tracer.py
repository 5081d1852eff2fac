"""Traces a forward by torch.fx, and refuses what its graph would lose."""

from __future__ import annotations

import contextlib
import linecache
import operator
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.amp import autocast
from torch.autograd import Function

import fusegen
from fusegen.models.lift.fx_graph import IN_PLACE, NO_GRAD
from fusegen.models.lift.optional import require_default
from fusegen.models.lift.untraced import Lost
from fusegen.models.reader.aten_calls import TRACING

REFUSED = (  # methods, and why a forward that calls one is not traced
    (torch, "manual_seed", "it seeds random numbers, which a graph of torch.fx does not keep"),
    (autocast, "__enter__", "it enters autocast, which a graph of torch.fx does not keep"),
    (
        Function.__mro__[1],  # which Function.apply calls; a bound one may be older than the replacement
        "apply",
        "it calls a torch.autograd.Function, whose backward a graph of torch.fx does not keep",
    ),
)
OWN = (
    os.path.dirname(torch.__file__),
    os.path.dirname(fusegen.__file__),
)  # folders that may ask for classes
NUMBERS = frozenset("size shape dim ndim ndimension numel nelement item stride element_size".split())
RANDOM = ("normal", "rand", "randint", "randn", "randperm")
FACTORIES = (*RANDOM, "arange", "empty", "eye", "full", "linspace", "ones", "zeros")  # of no tensor


class InPlace(fx.Proxy):
    """A value that keeps statements such as ``x += y`` as the writes in place that they are."""

    @property
    def __class__(self) -> type[InPlace]:
        """Its class, unless a forward asks for it, which would hear that it is no tensor."""
        frame = sys._getframe(1)
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        is_forward = (
            not frame.f_code.co_filename.startswith(OWN) or frame.f_code is torch.is_tensor.__code__
        )
        if is_forward and "isinstance(" in line and "Tensor" in line:
            raise Lost("it asks if a value of its graph is a tensor")
        return InPlace

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise Lost("it sets the class of a tensor")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("tracer", "node"):
            raise Lost(f"it sets the attribute {name} of a tensor")
        super().__setattr__(name, value)


def _is_number(node: fx.Node) -> bool:
    """True if a value is a size, a shape or their arithmetic, which a statement replaces, not writes to."""
    if node.op == "call_method" or node.target is getattr:
        return (node.target if node.op == "call_method" else node.args[1]) in NUMBERS
    is_python = getattr(node.target, "__module__", "") in ("_operator", "math", "builtins")
    read = node.all_input_nodes
    return node.op == "call_function" and is_python and bool(read) and all(map(_is_number, read))


def _writes(operation: Callable[[Any, Any], Any]) -> Callable[[InPlace, Any], fx.Proxy]:
    name = operation.__name__.removeprefix("i")
    of_numbers = getattr(operator, name, None) or getattr(operator, f"{name}_")

    def write(self: InPlace, other: Any) -> fx.Proxy:
        target = of_numbers if _is_number(self.node) else operation
        return self.tracer.create_proxy("call_function", target, (self, other), {})

    return write


for _operation in IN_PLACE:
    setattr(InPlace, f"__{_operation.__name__}__", _writes(_operation))


class Tracer(fx.Tracer):
    """Traces parameters and buffers as values, and keeps the line of each operation.

    torch.fx replaces `nn.Module.__call__` and `__getattr__` for all threads; one of them traces.
    """

    def __init__(self, defaults: Mapping[str, Any] | None = None) -> None:
        """Trace a forward, with defaults in the place of values of the graph."""
        super().__init__()
        self.record_stack_traces = True
        self.defaults = defaults or {}
        self.thread = threading.get_ident()

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record the call of a module; that of another thread runs."""
        if threading.get_ident() != self.thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Return the value of the graph for a parameter or a buffer; in another thread the attribute."""
        if threading.get_ident() != self.thread:
            return attr_val
        if isinstance(attr_val, Tensor):
            for name, tensor in (*self.root.named_parameters(), *self.root.named_buffers()):
                if tensor is attr_val:
                    if name not in parameter_proxy_cache:
                        parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {})
                    return parameter_proxy_cache[name]
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def create_args_for_root(self, *of: Any, **named: Any) -> tuple[Any, list[Any]]:
        """Return the forward and its arguments."""
        function, arguments = super().create_args_for_root(*of, **named)
        return function, [*map(self._or_default, arguments)]

    def _or_default(self, value: Any) -> Any:
        """Return the default of an argument that has one, which a call of the graph then requires."""
        name = str(value.node.target) if isinstance(value, fx.Proxy) else ""
        if name not in self.defaults:
            return value
        self.create_proxy("call_function", require_default, (value, self.defaults[name], name), {})
        return self.defaults[name]

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> fx.Graph:
        """Return the graph of a forward, whose nodes know where it records no gradients.

        Raises:
            Lost: forward enters autocast, or calls an operation with a backward of its own.
        """
        with TRACING, contextlib.ExitStack() as stack:
            stack.enter_context(torch.enable_grad())
            stack.enter_context(refusing())
            for name in FACTORIES:
                stack.enter_context(replaced(torch, name, self._recording(getattr(torch, name), name)))
            return super().trace(root, concrete_args)

    def _recording(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return a function that is a call of the graph, if it is random or reads values of the graph."""

        def record(*args: Any, **named: Any) -> Any:
            is_known = name not in RANDOM and not values_of_graph((args, named))
            if is_known or threading.get_ident() != self.thread:  # others may run models of their own
                return function(*args, **named)
            return self.create_proxy("call_function", function, args, named)

        return record

    def create_node(self, *of: Any, **named: Any) -> fx.Node:
        """Return a node of the graph."""
        node = super().create_node(*of, **named)
        if not torch.is_grad_enabled():
            node.meta[NO_GRAD] = True
        return node

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """Return a value of the graph."""
        return InPlace(node, self)


def values_of_graph(value: Any) -> list[fx.Proxy]:
    """Return the values of a graph in a value, in its lists, tuples and dicts."""
    found: list[fx.Proxy] = []

    def note(each: Any) -> Any:
        if isinstance(each, fx.Proxy):
            found.append(each)
        return each

    fx.node.map_aggregate(value, note)
    return found


def random_states() -> dict[str, object]:
    """Return the states of the generators of random numbers that a traced forward would draw from."""
    numpy = sys.modules.get("numpy")
    states: dict[str, object] = {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "Python's module random": random.getstate(),
    }
    return states if numpy is None else {**states, "numpy": repr(numpy.random.get_state())}


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Refuse calls that no graph keeps while a forward is traced."""
    with contextlib.ExitStack() as stack:
        for owner, name, why in REFUSED:
            stack.enter_context(replaced(owner, name, _refusing(why)))
        yield


def _refusing(why: str) -> Callable[..., Any]:
    """Return a function that cannot be called while a forward is traced."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise Lost(why)

    return refuse


@contextlib.contextmanager
def replaced(owner: Any, name: str, function: Any) -> Iterator[None]:
    """Has another function or property in the place of one."""
    before = {key: value for key, value in vars(owner).items() if key == name}
    setattr(owner, name, function)
    try:
        yield
    finally:
        delattr(owner, name)
        for value in before.values():
            setattr(owner, name, value)
