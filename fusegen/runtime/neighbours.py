"""The operators of a graph that Inductor could fuse with a neighbour, if it knew their formulas.

An edge between two pointwise operations can be fused, through views, unless a path between the two goes
through an operation that cannot be fused, such as a convolution. A reduction that reads an operator counts
where no such operation reads the same tensor, which is stored for that in any case. Operations of the
forward and of the backward graph are no neighbours, nor are graph inputs and outputs, and constants.
"""

import operator
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Set

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

REDUCTIONS = set(
    "sum mean prod var var_mean std std_mean amax amin aminmax max min argmax argmin any all norm "
    "linalg_vector_norm logsumexp _softmax _log_softmax native_layer_norm native_group_norm "
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
    "_fused_rms_norm cumsum".split()
)
POINTWISE = set("convert_element_type _to_copy cat constant_pad_nd native_dropout".split())
VIEWS = set("_unsafe_view reshape clone copy".split())  # besides those whose schema says that they are


@dataclass(frozen=True)
class Facts:
    """Kinds and places of the nodes of a graph."""

    kinds: "Dict[Any, str]"  # pointwise, reduction, view, or opaque
    order: "Dict[Any, int]"  # the place in the graph
    backward: "Set[Any]"  # the nodes that depend on the gradients that come into a joint graph

    @classmethod
    def of(cls, graph: Any, operators: "Set[Any]") -> "Facts":
        """Return the facts of a graph in which some operators are pointwise."""
        kinds = {node: "pointwise" if node in operators else _kind(node) for node in graph.nodes}
        backward: "Set[Any]" = set()
        for node in graph.nodes:
            incoming = node.op == "placeholder" and "tangents" in str(node.target)
            if incoming or not backward.isdisjoint(node.all_input_nodes):
                backward.add(node)
        return cls(kinds, {node: k for k, node in enumerate(graph.nodes)}, backward)

    def side(self, node: Any) -> bool:
        """Return the graph that a node will be in: forward, or backward."""
        return node in self.backward


LAUNCH = 1 << 24  # bytes that a kernel on CUDA writes in the time that Inductor takes to call an operator


def is_brief(node: Any) -> bool:
    """Return True if a node's kernel on CUDA takes less time than the call of an operator costs the CPU."""
    value = _first(node.meta.get("val"))
    if not isinstance(value, torch.Tensor) or value.device.type != "cuda":
        return False
    return bool(statically_known_true(value.numel() * value.element_size() < LAUNCH))


def with_neighbours(graph: Any, operators: "Set[Any]") -> "Set[Any]":
    """Return the nodes among some operators of a graph that have a neighbour to be fused with.

    Args:
        graph: a torch.fx.Graph of ATen operations: an inference graph, or a joint graph.
        operators: its pointwise nodes in question.
    """
    facts = Facts.of(graph, operators)
    return {
        node
        for node in operators
        if is_fused_with_reader(node, facts) or _is_fused_with_producer(node, facts)
    }


def _kind(node: Any) -> str:
    if node.op != "call_function" or not node.all_input_nodes:
        return "opaque"
    if node.target is operator.getitem:
        return "view"
    if not isinstance(node.target, torch._ops.OpOverload):
        return "opaque"
    name = node.target._schema.name.partition("::")[2]
    if name in VIEWS or node.target.is_view or (name == "add" and any(map(_is_zero, node.args))):
        return "view"
    if name in POINTWISE or torch.Tag.pointwise in node.target.tags:
        return "pointwise"
    return "reduction" if name in REDUCTIONS else "opaque"


def _is_zero(argument: Any) -> bool:
    """Return True for a tensor of zeros, to which autograd adds the gradient of a copy."""
    made = getattr(argument, "target", None) == torch.ops.aten.full.default
    return made and argument.args[1] == 0


def is_fused_with_reader(node: Any, facts: Facts) -> bool:
    """Return True if an operation that reads a pointwise node could be fused with it."""
    readers = [user for user in _readers(node, facts.kinds) if facts.side(user) == facts.side(node)]
    near = [user for user in readers if facts.kinds[user] == "pointwise"]
    if all(facts.kinds[user] != "opaque" or user.op == "output" for user in readers):
        near += [user for user in readers if facts.kinds[user] == "reduction"]
    return any(not _apart(node, user, facts) for user in near)


def _is_fused_with_producer(node: Any, facts: Facts) -> bool:
    made = [p for p in _producers(node, facts.kinds) if facts.side(p) == facts.side(node)]
    near = [p for p in made if facts.kinds[p] == "pointwise" and _as_large(p, node)]
    return any(not _apart(p, node, facts) for p in near)


def _readers(node: Any, kinds: "Dict[Any, str]") -> "Iterator[Any]":
    """Yield the nodes that read a node, also through views."""
    for user in node.users:
        if kinds[user] == "view":
            yield from _readers(user, kinds)
        else:
            yield user


def _producers(node: Any, kinds: "Dict[Any, str]") -> "Iterator[Any]":
    """Yield the nodes that a node reads, also through views."""
    for read in node.all_input_nodes:
        if kinds[read] == "view":
            yield from _producers(read, kinds)
        else:
            yield read


def _as_large(producer: Any, node: Any) -> bool:
    """Return True if a producer makes as many elements as a node: fusing the two then saves a tensor."""
    made, result = (_first(n.meta.get("val")) for n in (producer, node))
    tensors = isinstance(made, torch.Tensor) and isinstance(result, torch.Tensor)
    return tensors and bool(statically_known_true(made.numel() == result.numel()))


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (tuple, list)) else value


def _apart(first: Any, last: Any, facts: Facts) -> bool:
    """True if a path from one node to another goes through an opaque one: no kernel can hold both."""
    waiting: "List[Any]" = [(user, False) for user in first.users]
    seen: "Set[Any]" = set()
    while waiting:
        node, opaque = waiting.pop()
        if (node, opaque) in seen or facts.order[node] > facts.order[last]:
            continue
        seen.add((node, opaque))
        if node is last:
            if opaque:
                return True
            continue
        opaque = opaque or facts.kinds[node] == "opaque"
        waiting += [(user, opaque) for user in node.users]
    return False
