"""How the model's source writes each call of a graph: its statement, its operands and what is around it.

`note_source` reads the stack trace of each node, and puts what the syntax tree of that line says in the
node's ``meta``. Names of regions, inputs and numbers are from there. A call that a statement does not show
once for each node of the graph has no operands.
"""

import ast
import functools
import linecache
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx, nn
from torch._ops import OpOverload

from fusegen.models.lift.fx_graph import name_of
from fusegen.models.lift.labels import label_of, labelled
from fusegen.models.lift.places import Frame, frames_of
from fusegen.models.reader.capture import STACK

WRITTEN = "written"  # the key of how a node is written
AROUND = frozenset("forward __call__ <lambda> <listcomp> wrapper wrapped inner decorate_context".split())
BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow", ast.MatMult: "matmul",
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip
SAME = {  # other names of operators
    "truediv": "div", "true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub",
    "float": "to", "half": "to", "double": "to", "type": "to", "type_as": "to", "negative": "neg",
    **{f"i{name}": name for name in ("add", "sub", "mul", "matmul", "pow")}, "itruediv": "div",
}  # fmt: skip
SPACES = frozenset("torch F nn functional special".split())  # whose attributes are functions
KNOWN = (0.0, 1.0)  # numbers by which formulas get shorter
VIEWS = frozenset(
    "view view_as reshape expand expand_as unsqueeze squeeze permute transpose flatten contiguous clone "
    "detach to float half type type_as chunk split unbind T mT data".split()
)
NO_CALLS = VIEWS | {"size", "sym_size", "getitem", "getattr", "slice", "select"}  # which compute nothing


@dataclass(frozen=True)
class Written:
    """How the source writes a call."""

    frames: tuple[Frame, ...] = ()  # of the user's code, innermost last; the line is that of the statement
    variable: str = ""  # that the statement assigns its value to
    operands: tuple[ast.expr, ...] = ()  # the expressions of its arguments
    modules: tuple[tuple[str, str], ...] = ()  # around it: the paths and classes of the model's own
    calls: Mapping[str, int] = field(default_factory=dict)  # of the whole graph in each of these, by path

    @property
    def statement(self) -> object:
        """What is equal for calls of one statement; None if it is not known."""
        return self.frames or None

    @property
    def functions(self) -> tuple[Frame, ...]:
        """The frames from the forward of the innermost module on, without those of wrappers."""
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


def variable_of(statement: ast.stmt | None) -> str:
    """Return the variable that a statement assigns to; empty where it assigns to none or several."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AugAssign(target=ast.Name(id=name)):
            return name
        case ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return ""


def statement_at(file: str, line: int) -> ast.stmt | None:
    """Return the simple statement that a line of a file is in."""
    return _statements("".join(linecache.getlines(file))).get(line)


@functools.lru_cache(maxsize=64)
def _statements(text: str) -> Mapping[int, ast.stmt]:
    """Return the simple statements of a file, by their lines."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    simple = (each for each in ast.walk(tree) if isinstance(each, ast.stmt) and not hasattr(each, "body"))
    return {line: each for each in simple for line in range(each.lineno, (each.end_lineno or 0) + 1)}


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
    shown = [found for each in in_order(statement) if (found := _shown(each, name))] if statement else []
    fits = bool(shown) and len(nodes) % len(shown) == 0
    for place, node in enumerate(nodes):
        of, operands = shown[place % len(shown)] if fits else (None, ())
        is_last = written_of(node.next).frames != own.frames
        is_whole = is_last if of is None else of in (statement, getattr(statement, "value", None))
        variable = variable_of(statement) if is_whole else ""
        node.meta[WRITTEN] = replace(written_of(node), variable=variable, operands=operands)


def in_order(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes of a tree in the order in which they run: operands first."""
    found, left = list[ast.AST](), [tree]
    while left:
        node = left.pop()
        found.append(node)
        left += ast.iter_child_nodes(node)
    return found[::-1]


def _shown(at: ast.AST, name: str) -> tuple[ast.AST, tuple[ast.expr, ...]] | None:
    """Return an expression and its operands, if it is of an operation."""
    match at:
        case ast.BinOp(left=left, op=op, right=right) if BINARY.get(type(op)) == name:
            return at, (left, right)
        case ast.AugAssign(target=target, op=op, value=value) if BINARY.get(type(op)) == name:
            assert isinstance(target, ast.expr)
            return at, (target, value)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if BINARY.get(type(op)) == name:
            return at, (left, right)
        case ast.UnaryOp(op=ast.USub(), operand=operand) if name == "neg":
            return at, (operand,)
        case ast.Call(func=ast.Name(id=called), args=args) if _is_named(called, name):
            return at, tuple(args)
        case ast.Call(func=ast.Attribute(value=of, attr=called), args=args) if _is_named(called, name):
            is_method = _root(of) not in SPACES and _root(of) != "self"
            return at, (of, *args) if is_method else tuple(args)
    return None


def _is_named(called: str, name: str) -> bool:
    plain = called.strip("_").lower()
    return SAME.get(plain, plain) == name or called == name


def _root(of: ast.expr) -> str:
    """Return the name that a chain of attributes begins with; empty for other expressions."""
    while isinstance(of, ast.Attribute):
        of = of.value
    return of.id if isinstance(of, ast.Name) else ""


def name_in(of: ast.expr) -> tuple[str, bool]:
    """Return the name of a value in an expression, of which it may be a view, and if a module made it."""
    match of:
        case ast.Name(id=name):
            return ("" if name == "self" else name), False
        case ast.NamedExpr(target=ast.Name(id=name)):
            return name, False
        case ast.Subscript(value=value):
            return name_in(value)
        case ast.Attribute(value=value, attr=name):
            is_known = _root(of) and _root(of) not in SPACES
            return name_in(value) if name in VIEWS else (name if is_known else "", False)
        case ast.Call(func=ast.Attribute(value=value, attr=name)):
            if name in VIEWS:
                return name_in(value)
            return (name, True) if _root(value) == "self" else ("", False)
        case ast.Call(func=ast.Name(id=name)):
            return name, True
    return "", False


def _name_numbers(nodes: list[fx.Node], model: nn.Module) -> None:
    """Give the numbers of calls that are attributes of the model their labels.

    Whole numbers are counts and exponents mostly, of which a kernel knows more than of a number that may
    be any.
    """
    for node in nodes:
        of = written_of(node)
        path = of.modules[-1][0] if of.modules else ""
        attributes = [_attribute(each, path, model) for each in of.operands]
        known = {f"{path}.{name}".lstrip("."): value for name, value in attributes if _is_labelled(value)}
        if known and operation(node) != "pow":
            node.args = fx.node.map_aggregate(node.args, functools.partial(_with_label, known))
            node.kwargs = fx.node.map_aggregate(node.kwargs, functools.partial(_with_label, known))
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
            value = getattr(model.get_submodule(path), name, None)
            return (name, value) if isinstance(value, int | float) else ("", None)
    return "", None


def _is_labelled(value: Any) -> bool:
    return isinstance(value, float) and label_of(value) is None and value not in KNOWN


def _with_label(known: Mapping[str, float], value: Any) -> Any:
    """Return a number with its label, where one attribute alone has this value."""
    if type(value) is not float:
        return value
    labels = [label for label, each in known.items() if each == value]
    return labelled(labels[0], value) if len(labels) == 1 else value


NOTHING = Written()
