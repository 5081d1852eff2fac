"""A graph of TorchDynamo as a graph of ATen operators, captured before autograd as forwards are.

Its calls run on tensors without memory, whose sizes are the numbers and the symbols of TorchDynamo. Calls
that give or read no tensor, and those that hold a graph of their own, as of a checkpoint or of a function
with a backward, stay as TorchDynamo has them.
"""

from typing import Any

import torch
from torch import SymInt, Tensor, fx
from torch._guards import TracingContext
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental import proxy_tensor
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from fusegen.errors import NotCaptured, Span
from fusegen.models.lift.noted_arithmetic import noting_arithmetic
from fusegen.models.lift.noted_calls import Noting
from fusegen.models.lift.untraced import Lost, in_a_line, in_words
from fusegen.models.reader.aten_calls import TRACING

EXAMPLE = "example_value"  # the key of the value of a node of TorchDynamo
OF_CAPTURE = ("val", "tensor_meta", "seq_nr", "original_aten")  # keys that a capture of a graph writes
UNBACKED = "unbacked_bindings"  # the key of nodes that make sizes of values
GRAPH = "a graph of torch.compile"
UNLIKE = "{} gives another tensor than in TorchDynamo"
KIND = "a tensor in it is a {}"
APART = "a tensor in it is of no operator"


def operators_of(graph: fx.GraphModule) -> fx.GraphModule:
    """Return a graph of TorchDynamo as one of operators, with example values; it is left as it is.

    Raises:
        NotCaptured: a call refuses tensors without memory.
    """
    inputs = graph.graph.find_nodes(op="placeholder")
    values = [node.meta.get(EXAMPLE) for node in inputs]

    def run(*given: Any) -> Any:
        with Noting() as noting:
            return _Run(graph, mode, noting.tracer).run(*given)

    try:
        mode = _mode(values)
        with TRACING, noting_arithmetic(), mode, fx.traceback.preserve_node_meta():
            given = _without_memory(mode, values)
            made = proxy_tensor.make_fx(run, pre_dispatch=True, _allow_non_fake_inputs=True)(*given)
        _write_constants(made, graph)
    except (Exception, Lost) as error:
        why = in_words(error) or f"it raises {in_a_line(error)}"
        raise NotCaptured(Span(GRAPH), why=why) from error
    for node, own in zip(made.graph.find_nodes(op="placeholder"), inputs, strict=True):
        node._rename(own.name)
        node.target = own.target
    return made


def take_over(graph: fx.GraphModule, operators: fx.GraphModule) -> None:
    """Let a graph of TorchDynamo be that of its operators, with the inputs that it has."""
    of, inputs = graph.graph, graph.graph.find_nodes(op="placeholder")
    for node in reversed(of.nodes):
        if node.op != "placeholder":
            of.erase_node(node)
    known = dict(zip(operators.graph.find_nodes(op="placeholder"), inputs, strict=True))
    of.output(of.graph_copy(operators.graph, known))
    for node in of.nodes:
        if node not in inputs:
            value = node.meta.get("val")
            node.meta = {key: each for key, each in node.meta.items() if key not in OF_CAPTURE}
            node.meta.setdefault(EXAMPLE, value)
    graph.recompile()


class _Run(fx.Interpreter):
    """Runs a graph of TorchDynamo while its operators are recorded."""

    def __init__(self, graph: fx.GraphModule, mode: FakeTensorMode, tracer: Any) -> None:
        super().__init__(graph)
        self.mode, self.tracer = mode, tracer

    def run_node(self, node: fx.Node) -> Any:
        """Return the value of a node."""
        value = node.meta.get(EXAMPLE)
        if node.op == "get_attr" and value is None:  # a graph of a call, which is read where it is called
            return None
        if _stays(node):
            return self._recorded(node, value)
        made = super().run_node(node)
        if node.op.startswith("call_") and value is not None and _kinds(made) != _kinds(value):
            raise TypeError(UNLIKE.format(node.name))
        return made

    def _recorded(self, node: fx.Node, value: Any) -> Any:
        """Record a call as it is, and return its value."""
        with fx.traceback.set_current_meta(node), proxy_tensor.disable_proxy_modes_tracing():
            given = fx.map_arg((node.args, node.kwargs), self._read)
            proxy = self._proxy(node, *given)
            proxy.node.meta |= node.meta
            made = _without_memory(self.mode, value)
            return proxy_tensor.track_tensor_tree(made, proxy, constant=None, tracer=self.tracer)

    def _read(self, node: fx.Node) -> Any:
        value = self.env[node]
        is_graph = node.op == "get_attr" and value is None
        return self._proxy(node, (), {}) if is_graph else tree_map(self.tracer.unwrap_proxy, value)

    def _proxy(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        if node.op in ("get_attr", "call_module"):
            setattr(self.tracer.root, str(node.target), getattr(self.module, str(node.target)))
        return self.tracer.create_proxy(node.op, node.target, args, kwargs)


def _mode(values: Any) -> FakeTensorMode:
    """Return the mode in which the backend is to trace, or that of the values where it runs by itself."""
    context = TracingContext.try_get()
    of_values = (each.fake_mode for each in values if isinstance(each, FakeTensor))
    return (context and context.fake_mode) or next(of_values, None) or FakeTensorMode()


def _stays(node: fx.Node) -> bool:
    """Tell if a node is recorded as it is."""
    if not node.op.startswith("call_"):
        return node.op == "get_attr"
    is_whole = node.op == "call_module" or isinstance(node.target, HigherOrderOperator)
    value = node.meta.get(EXAMPLE)
    read = [each.meta.get(EXAMPLE) for each in node.all_input_nodes]
    gives_none = value is not None and not _tensors(value)
    return is_whole or UNBACKED in node.meta or gives_none or not _tensors(read)


def _tensors(value: Any) -> list[Tensor]:
    return [each for each in tree_leaves(value) if isinstance(each, Tensor)]


def _kinds(value: Any) -> list[Any]:
    """Return what of the tensors of a value their operators decide."""
    return [(each.dtype, each.device, [*map(_size, each.shape)]) for each in _tensors(value)]


def _size(size: int | SymInt) -> Any:
    return size.node.hint if isinstance(size, SymInt) else size


def _without_memory(mode: FakeTensorMode, value: Any) -> Any:
    """Return a value with other tensors of its sizes in place of its own, to which calls may write.

    Raises:
        TypeError: a tensor is of another class or layout, which has more than sizes.
    """

    def other(of: Tensor) -> Tensor:
        if not isinstance(of, FakeTensor) or of.layout is not torch.strided:
            raise TypeError(KIND.format(type(of).__name__))
        kind: Any = {"dtype": of.dtype, "device": of.device, "requires_grad": of.requires_grad}
        return torch.empty_strided(of.shape, of.stride(), **kind)

    with mode:
        return tree_map_only(Tensor, other, value)


def _write_constants(made: fx.GraphModule, of: fx.GraphModule) -> None:
    """Let the graph make the tensors that the capture holds, as TorchDynamo has calls that make some."""
    for node in made.graph.find_nodes(op="get_attr"):
        held = getattr(made, str(node.target))
        if not isinstance(held, Tensor) or held is getattr(of, str(node.target), None):
            continue
        if isinstance(held, FakeTensor):  # as that of `x.data`, which no operator gives
            raise TypeError(APART)
        with made.graph.inserting_before(node):
            call = made.graph.call_function(torch.tensor, (held.tolist(),), {"dtype": held.dtype})
        call.meta = dict(node.meta)
        node.replace_all_uses_with(call)
        made.graph.erase_node(node)
