"""The graph of a model's forward, traced by torch.fx, and its translation."""

from __future__ import annotations

import ast
import contextlib
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.amp import autocast
from torch.autograd import Function

from fusegen.lift.load import Problem
from fusegen.lift.untraced import Lost

IN_PLACE = (  # of statements
    *(operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow, operator.imatmul),
    *(operator.ifloordiv, operator.imod, operator.iand, operator.ior, operator.ixor),
)
NO_WRITES = (
    operator.and_,
    operator.or_,
    operator.not_,
    operator.is_,
    "requires_grad_",
)  # named like writes
NO_GRAD = "no_grad"  # the key of nodes that run without gradients
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
REFUSED = (  # methods, and why a forward that calls one is not traced
    (autocast, "__enter__", "it enters autocast, which a graph of torch.fx does not keep"),
    (
        Function,
        "apply",
        "it calls a torch.autograd.Function, whose backward a graph of torch.fx does not keep",
    ),
)
RANDOM = ("normal", "rand", "randint", "randn", "randperm")
FACTORIES = (*RANDOM, "arange", "empty", "eye", "full", "linspace", "ones", "zeros")  # of no tensor
START = "%start"  # what the chain begins with: the first input, behind the layers


@dataclass(frozen=True)
class Operation:
    """A pointwise operation of a graph.

    Attributes:
        key: its name in formulas of others; no name of the language.
        body: its formula, in names of inputs, state and scalars, and keys of other operations.
        what: its name in the model.
        line: of the model's file.
    """

    key: str
    body: ast.expr
    what: str
    line: int

    @property
    def reads(self) -> frozenset[str]:
        """The keys of the values that it reads."""
        return keys_in(self.body)


@dataclass(frozen=True)
class Traced:
    """The computation of forward.

    Attributes:
        layers: the attributes of the layers that run first, in order, with the line of each call.
        operations: those behind them, in order.
        result: the key of the value that is returned.
    """

    layers: dict[str, int]
    operations: tuple[Operation, ...]
    result: str


def keys_in(body: ast.expr) -> frozenset[str]:
    """The keys in a formula."""
    names = (node.id for node in ast.walk(body) if isinstance(node, ast.Name))
    return frozenset(name for name in names if name.startswith("%"))


def live(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that the result depends on."""
    found: set[fx.Node] = set()
    left = [node for node in graph.nodes if node.op == "output"]
    while left:
        node = left.pop()
        found.add(node)
        left += [each for each in node.all_input_nodes if each not in found]
    return found


def writes_in_place(node: fx.Node) -> bool:
    """True if a call writes to its first argument."""
    if node.op == "call_module" or node.target in NO_WRITES:
        return False
    name = name_of(node)
    written = name.endswith("_") and not name.endswith("__")
    return written or node.target in IN_PLACE or bool(node.kwargs.get("inplace"))


class InPlace(fx.Proxy):
    """A value that keeps statements such as ``x += y`` as the writes in place that they are."""


def _writes(operation: Callable[[Any, Any], Any]) -> Callable[[InPlace, Any], fx.Proxy]:
    def write(self: InPlace, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", operation, (self, other), {})

    return write


for _operation in IN_PLACE:
    setattr(InPlace, f"__{_operation.__name__}__", _writes(_operation))


class Tracer(fx.Tracer):
    """Traces parameters and buffers as values, and keeps the line of each operation."""

    def __init__(self) -> None:
        super().__init__()
        self.record_stack_traces = True

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> fx.Graph:
        """The graph of a forward, whose nodes know where it records no gradients.

        Raises:
            Lost: forward enters autocast, or calls an operation with a backward of its own.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.enable_grad())
            for owner, name, why in REFUSED:
                stack.enter_context(_replaced(owner, name, _refusing(why)))
            for name in FACTORIES:
                stack.enter_context(_replaced(torch, name, self._recording(getattr(torch, name), name)))
            return super().trace(root, concrete_args)

    def _recording(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """A function that is a call of the graph, if it is random or reads values of the graph."""

        def record(*args: Any, **named: Any) -> Any:
            of_graph: list[fx.Proxy] = []
            fx.node.map_aggregate((args, named), lambda each: _collect(each, of_graph))
            if not of_graph and name not in RANDOM:
                return function(*args, **named)
            return self.create_proxy("call_function", function, args, named)

        return record

    def create_node(self, *of: Any, **named: Any) -> fx.Node:
        """A node of the graph."""
        node = super().create_node(*of, **named)
        if not torch.is_grad_enabled():
            node.meta[NO_GRAD] = True
        return node

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """A value of the graph."""
        return InPlace(node, self)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """A value of the graph in the place of a parameter or a buffer."""
        if isinstance(attr_val, Tensor):
            for name, tensor in (*self.root.named_parameters(), *self.root.named_buffers()):
                if tensor is attr_val:
                    if name not in parameter_proxy_cache:
                        parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {})
                    return parameter_proxy_cache[name]
        return super().getattr(attr, attr_val, parameter_proxy_cache)


def _collect(value: Any, found: list[fx.Proxy]) -> Any:
    if isinstance(value, fx.Proxy):
        found.append(value)
    return value


def _refusing(why: str) -> Callable[..., Any]:
    """A function that cannot be called while a forward is traced."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise Lost(why)

    return refuse


@contextlib.contextmanager
def _replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Has another function in the place of one."""
    own = vars(owner)[name]
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, own)


def own(graph: Any, model: nn.Module | None) -> None:
    """Set the module of a graph, which fx types as a GraphModule; only its layers are looked up."""
    graph.owning_module = model


def what(node: fx.Node) -> str:
    """A node in words: the function, the method or the module."""
    if node.op == "call_module":
        return str(node.target)
    if node.target is getattr:
        return f"the attribute {node.args[1]}"
    return name_of(node).strip("_")


def name_of(node: fx.Node) -> str:
    """The name of the function or the method that a node calls."""
    return (
        node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", node.target))
    )


def line_of(problem: Problem, node: fx.Node) -> int:
    """The line of the model's file that made a node; 0 where none did."""
    found = re.findall(rf'File "{re.escape(str(problem.path))}", line (\d+)', node.stack_trace or "")
    return int(found[-1]) if found else 0


def forward_line(problem: Problem) -> int:
    """The line where forward begins; 0 where it is in another file."""
    code = getattr(problem.model.forward, "__code__", None)
    return code.co_firstlineno if code and code.co_filename == str(problem.path) else 0
