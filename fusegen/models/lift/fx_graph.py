"""The captured graph of a model's forward, and its translation."""

import ast
import re
from dataclasses import dataclass
from typing import Any

from torch import fx, nn
from torch._ops import OpOverload

from fusegen.models.lift.load import Problem
from fusegen.models.reader.capture import HOOKS as HOOKS
from fusegen.models.reader.capture import NO_GRAD as NO_GRAD

CALLED = {"numpy_T": "T", "sym_size": "size", "sym_numel": "numel", "vector_norm": "norm"}  # operators
LAYER = "layer"  # the key of the path of a layer, of the nodes that stand for its call
REPLACED = "replaced"  # the key of nodes that make a new tensor in the place of a write
START = "%start"  # what the chain begins with: the first input, behind the layers


@dataclass(frozen=True)
class Operation:
    """A pointwise operation of a graph."""

    key: str  # its name in formulas of others; no name of the language
    body: ast.expr  # its formula, in names of inputs, state and scalars, and keys of other operations
    what: str  # its name in the model
    line: int = 0  # of the model's file
    statement: object = None  # equal for operations of one; None where it is not known
    variable: str = ""  # that its statement assigns it to

    @property
    def reads(self) -> frozenset[str]:
        """The keys of the values that it reads."""
        return keys_in(self.body)


@dataclass(frozen=True)
class Traced:
    """The computation of forward."""

    # the attributes of the layers that run first, in order, with the line of each call
    layers: dict[str, int]
    operations: tuple[Operation, ...]  # those behind them, in order
    result: str  # the key of the value that is returned
    others: tuple[str, ...] = ()  # those of other results


def keys_in(body: ast.expr) -> frozenset[str]:
    """Return the keys in a formula."""
    names = (node.id for node in ast.walk(body) if isinstance(node, ast.Name))
    return frozenset(name for name in names if name.startswith("%"))


def live(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes that the result depends on."""
    found: set[fx.Node] = set()
    left = [node for node in graph.nodes if node.op == "output"]
    while left:
        node = left.pop()
        found.add(node)
        left += [each for each in node.all_input_nodes if each not in found]
    return found


def own(graph: Any, model: nn.Module | None) -> None:
    """Set the module of a graph, which fx types as a GraphModule; only its layers are looked up."""
    graph.owning_module = model


def copied(graph: fx.Graph) -> fx.Graph:
    """Return a copy of a graph, without erased nodes and what they held."""
    made = fx.Graph()
    made.output(made.graph_copy(graph, {}))
    return made


def what(node: fx.Node) -> str:
    """Return a node in words: the function, the method or the module."""
    if node.op == "call_module" or LAYER in node.meta:
        return str(node.meta.get(LAYER, node.target))
    name = name_of(node).strip("_").removeprefix("linalg_").removeprefix("special_")
    return CALLED.get(name, name)


def name_of(node: fx.Node) -> str:
    """Return the name of the operator, or of what else a node calls."""
    if isinstance(node.target, OpOverload):
        return node.target._schema.name.rpartition("::")[2]
    return (
        node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", node.target))
    )


def line_of(problem: Problem, node: fx.Node) -> int:
    """Return the line of the model's file that made a node; 0 where none did."""
    found = re.findall(rf'File "{re.escape(str(problem.path))}", line (\d+)', node.stack_trace or "")
    return int(found[-1]) if found else 0


def forward_line(problem: Problem) -> int:
    """Return the line where forward begins; 0 where it is in another file."""
    code = getattr(problem.model.forward, "__code__", None)
    return code.co_firstlineno if code and code.co_filename == str(problem.path) else 0
