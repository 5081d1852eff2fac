"""The model's source of each call of a graph: its statement, its operands and what is around it.

`note_source` reads the stack trace of each node, and puts what the syntax tree of that line says in the
node's ``meta``. Names of regions, inputs and numbers are from there. A call that a statement does not show
once for each node of the graph has no operands.
"""

import ast
import functools
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx, nn
from torch._ops import OpOverload

from fusegen.models.lift.fx_graph import name_of
from fusegen.models.lift.labels import known, label_of
from fusegen.models.lift.places import Frame, frames_of
from fusegen.models.lift.source_text import SAME, VIEWS, in_order, name_in, shown, statement_at, variable_of
from fusegen.models.reader.capture import STACK

WRITTEN = "written"  # the key of how a node is written
AROUND = frozenset("forward __call__ <lambda> <listcomp> wrapper wrapped inner decorate_context".split())
KNOWN = (0.0, 1.0)  # numbers by which formulas get shorter
NO_CALLS = VIEWS | {"size", "sym_size", "getitem", "getattr", "slice", "select"}  # which compute nothing


@dataclass(frozen=True)
class Written:
    """The source of a call."""

    frames: tuple[Frame, ...] = ()  # of the user's code, innermost last; the line is that of the statement
    variable: str = ""  # that the statement assigns its value to
    operands: tuple[ast.expr, ...] = ()  # the expressions of its arguments
    modules: tuple[tuple[str, str], ...] = ()  # around it: the paths and classes of the model's own
    calls: Mapping[str, int] = field(default_factory=dict)  # of the whole graph in each of these, by path

    @property
    def statement(self) -> object:
        """Return what is equal for calls of one statement; None if it is not known."""
        return self.frames or None

    @property
    def functions(self) -> tuple[Frame, ...]:
        """Return the frames from the forward of the innermost module on, without those of wrappers."""
        last = max((k for k, each in enumerate(self.frames) if each.function == "forward"), default=0)
        return self.frames[last:]

    def name(self, place: int) -> tuple[str, bool]:
        """Return the name of an argument by its place, and if it is that of the module which made it."""
        return name_in(self.operands[place]) if place < len(self.operands) else ("", False)


def written_of(node: fx.Node) -> Written:
    """Return how the source writes a node, as far as that is known."""
    found: Written = node.meta.get(WRITTEN, NOTHING)
    return found


def note_source(graph: fx.Graph, model: nn.Module | None = None) -> None:
    """Note on each call how the source writes it, and by which attribute of the model it has a number."""
    groups: dict[object, list[fx.Node]] = {}
    counts: dict[str, int] = {}
    for node in (each for each in graph.nodes if each.op.startswith("call_")):
        frames = tuple(_at_statement(each) for each in frames_of(node))
        own = Written(frames, modules=_own_modules(node, model), calls=counts)
        node.meta[WRITTEN] = own
        groups.setdefault((frames, operation(node)), []).append(node)
        if operation(node) not in NO_CALLS:
            for path, _ in own.modules:
                counts[path] = counts.get(path, 0) + 1
    for nodes in groups.values():
        _note_operands(nodes)
        if model is not None:
            _name_numbers(nodes, model)


def operation(node: fx.Node) -> str:
    """Return the operation of a node as source code names it: of a module, its attribute."""
    if node.op == "call_module":
        return str(node.target).rpartition(".")[2]
    name = name_of(node).strip("_").lower()
    return SAME.get(name, name)


def _at_statement(frame: Frame) -> Frame:
    found = statement_at(frame.file, frame.line)
    return Frame(frame.file, found.lineno if found else frame.line, frame.function)


def _own_modules(node: fx.Node, model: nn.Module | None) -> tuple[tuple[str, str], ...]:
    """Return the modules around a node that are no layers of PyTorch, the model first."""
    stack: Iterable[tuple[str, type]] = node.meta.get(STACK, {}).values()
    root = [("", type(model))] if model is not None else []
    every = [*root, *((str(path), kind) for path, kind in stack if path)]
    own = ((path, kind) for path, kind in every if isinstance(kind, type))
    return tuple((path, kind.__name__) for path, kind in own if not kind.__module__.startswith("torch."))


def _note_operands(nodes: list[fx.Node]) -> None:
    """Note the expressions of calls of one operation in one statement, each of which runs as often."""
    own = written_of(nodes[0])
    statement = statement_at(own.frames[-1].file, own.frames[-1].line) if own.frames else None
    name = operation(nodes[0])
    every = [found for each in in_order(statement) if (found := shown(each, name))] if statement else []
    fits = bool(every) and len(nodes) % len(every) == 0
    for place, node in enumerate(nodes):
        of, operands = every[place % len(every)] if fits else (None, ())
        is_last = written_of(node.next).frames != own.frames
        is_whole = is_last if of is None else of in (statement, getattr(statement, "value", None))
        variable = variable_of(statement) if is_whole else ""
        node.meta[WRITTEN] = replace(written_of(node), variable=variable, operands=operands)


def _name_numbers(nodes: list[fx.Node], model: nn.Module) -> None:
    """Give the numbers of calls that are attributes of the model their labels.

    Whole numbers are counts and exponents mostly, of which a kernel knows more than of a number that may
    be any.
    """
    for node in nodes:
        of = written_of(node)
        path = of.modules[-1][0] if of.modules else ""
        attributes = [_attribute(each, path, model) for each in of.operands]
        named = {f"{path}.{name}".lstrip("."): value for name, value in attributes if _is_labelled(value)}
        if named and operation(node) != "pow":
            node.args = fx.node.map_aggregate(node.args, functools.partial(_with_label, named))
            node.kwargs = fx.node.map_aggregate(node.kwargs, functools.partial(_with_label, named))
        shown = [
            name != "" or isinstance(each, ast.Constant)
            for each, (name, _) in zip(of.operands, attributes, strict=True)
        ]
        if (
            len(shown) == len(node.args) == 2
            and isinstance(node.target, OpOverload)
            and len(node.all_input_nodes) == 1
        ):
            # an operator has the tensor in front, wherever the number is written
            operands = of.operands if shown[1] else of.operands[::-1] if shown[0] else ()
            node.meta[WRITTEN] = replace(of, operands=operands)


def _attribute(of: ast.expr, path: str, model: nn.Module) -> tuple[str, Any]:
    """Return the attribute and its value if an expression is ``self.name``, a number; else no name."""
    match of:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            value = inspect.getattr_static(model.get_submodule(path), name, None)  # runs no property
            return (name, value) if isinstance(value, int | float) else ("", None)
    return "", None


def _is_labelled(value: Any) -> bool:
    return isinstance(value, float) and label_of(value) is None and value not in KNOWN


def _with_label(named: Mapping[str, float], value: Any) -> Any:
    """Return a number with its label, where one attribute alone has this value."""
    if type(value) is not float:
        return value
    labels = [label for label, each in named.items() if each == value]
    return known(labels[0], value) if len(labels) == 1 else value


NOTHING = Written()
