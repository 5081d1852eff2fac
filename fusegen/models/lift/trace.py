"""The graph of a model's forward, each operation as a formula in the values that it reads."""

import ast
from collections.abc import Callable
from typing import Any, NoReturn

from torch import fx

from fusegen.core.layers import PRODUCERS
from fusegen.errors import FusegenError, NotLifted, Span
from fusegen.language.parse.names import check_variable
from fusegen.models.lift.constructed_state import Constructed
from fusegen.models.lift.fx_graph import NO_GRAD, START, Operation, Traced, forward_line, line_of, what
from fusegen.models.lift.labels import label_of, plain
from fusegen.models.lift.load import Problem, line_span
from fusegen.models.lift.merged_modes import CALL
from fusegen.models.lift.model_graphs import ARGUMENT
from fusegen.models.lift.model_inputs import Given
from fusegen.models.lift.noted_reads import DIM_READ, DTYPE_READ, VALUE
from fusegen.models.lift.regions.aliases import writes
from fusegen.models.lift.regions.pointwise import CONSTANT, formula_of
from fusegen.models.lift.source_of_calls import written_of
from fusegen.models.lift.symbols import term
from fusegen.models.reader.aten_calls import calls_of
from fusegen.models.reader.aten_table import REDUCING, REDUCTION, ROWS, UNKNOWN, UNSQUEEZE
from fusegen.models.reader.formula import Unfit, number
from fusegen.models.reader.operator_call import Calls

SHARING = ("detach", "contiguous", "unsqueeze")  # their results may share the memory of what they read
TABLE = {**ROWS, **UNSQUEEZE}
WHOLE = "leave it to PyTorch: lift with --partial, or call it before or after the module"


class Reader:
    """The values of the nodes so far."""

    def __init__(self, problem: Problem, of: Constructed, given: Given) -> None:
        self.problem, self.of = problem, of
        self.symbols = {
            **given.symbols,
            **{ARGUMENT.format(name): own for name, own in given.names.items()},
        }
        self.names, self.first = given.names, given.first
        self.values: dict[fx.Node, ast.expr] = {}
        self.layers: dict[str, int] = {}
        self.operations: list[Operation] = []
        self.result = ""
        self.last: fx.Node | None = None  # what the layers have made so far

    def take(self, node: fx.Node) -> None:
        """Read the next node."""
        readers: dict[str, Callable[[fx.Node], None]] = {
            "placeholder": self.placeholder,
            "get_attr": self.attribute,
            "call_module": self.module,
            "call_function": self.function,
            "output": self.output,
        }
        readers[node.op](node)

    def found(self) -> Traced:
        """Return the values that were read."""
        return Traced(self.layers, tuple(self.operations), self.result)

    def placeholder(self, node: fx.Node) -> None:
        """Read an argument of forward."""
        for key, read in ((DTYPE_READ, "dtype"), (DIM_READ, "dim")):
            if key in node.meta:
                why = "a spec holds for any dtype and any number of dimensions"
                named = sorted({str(node.target)} if VALUE in node.meta[key] else node.meta[key])
                self.refuse(node, f"{read} of {named[0]}", why, "lift with --partial")
        self.values[node] = ast.Name(self.names[str(node.target)])
        if self.last is None and str(node.target) == self.first:
            self.last = node
            self.values[node] = ast.Name(START)

    def attribute(self, node: fx.Node) -> None:
        """Read a parameter, a buffer or a constant."""
        name = str(node.target)
        user = next(iter(node.users), node)
        if name in self.of.state:
            try:
                check_variable(name, Span(""))
            except FusegenError as error:  # the state_dict has it, so that it keeps its name
                self.refuse(user, f"{name}, which {what(user)} reads,", error.message, "rename it")
            self.values[node] = ast.Name(name)
            return
        if "." in name:
            why = "it is a parameter or buffer of a module in the model"
            self.refuse(user, f"{name}, which {what(user)} reads,", why, "make it one of the model itself")
        if CONSTANT not in node.meta:
            made = node.meta.get(CALL, "")
            by = f"by {made.partition('(')[0].removeprefix('torch.')}" if made else "outside of forward"
            why = f"it is made {by}, and only a tensor of one number, torch.tensor(v), is known"
            self.refuse(user, f"a tensor that {what(user)} reads", why, "make it in the constructor")
        try:
            self.values[node] = self.constant(node.meta[CONSTANT])
        except Unfit as error:
            self.refuse(user, "tensor", str(error))

    def module(self, node: fx.Node) -> None:
        """Read the call of an activation or of a layer."""
        name = str(node.target)
        layer = self.of.model.get_submodule(name)
        calls = calls_of(node)
        if calls is not None and calls.made and all(call.name in ROWS for call in calls.made):
            self.operation(node, calls)
            return
        shown = f"{name} ({type(layer).__name__})"
        if name not in self.of.layers:
            nested = "." in name and type(layer).__name__ in PRODUCERS
            why = "it is no pointwise operation, and no layer that a spec has"
            self.refuse(node, shown, "it lies in another module of the model" if nested else why)
        if self.operations:
            self.refuse(node, shown, f"it is behind {self.operations[-1].what}, and layers run first")
        if name in self.layers:
            self.refuse(node, shown, "it is called twice")
        if node.args != (self.last,) or node.kwargs:
            self.refuse(node, shown, "layers run one after the other, on the first input")
        self.layers[name] = line_of(self.problem, node)
        if self.last is not None:
            del self.values[self.last]
        self.values[node] = ast.Name(START)
        self.last = node

    def function(self, node: fx.Node) -> None:
        """Read the call of a function or of a method."""
        calls = calls_of(node)
        if calls is None or any(call.name not in TABLE for call in calls.made) or calls.result is None:
            named = () if calls is None else (call.name for call in calls.made)
            why = REDUCTION if REDUCING & {*named} else UNKNOWN
            self.refuse(node, what(node), why)
        self.operation(node, calls)

    def operation(self, node: fx.Node, calls: Calls) -> None:
        """Read a pointwise operation."""
        if NO_GRAD in node.meta:
            self.refuse(node, what(node), "it runs without gradients")
        if writes(node):
            self.check_in_place(node, node.args[0])
        try:
            body = formula_of(node, calls, self.value, TABLE)
        except Unfit as error:
            self.refuse(node, what(node), str(error))
        if isinstance(body, ast.Name):  # a clone, which is the value itself
            self.values[node] = body
            return
        if calls.name in UNSQUEEZE:
            self.values[node] = self.view(node, body)
            return
        key = f"%{node.name}"
        self.values[node] = ast.Name(key)
        line, source = line_of(self.problem, node), written_of(node)
        self.operations.append(Operation(key, body, what(node), line, source.statement, source.variable))

    def view(self, node: fx.Node, body: ast.expr) -> ast.expr:
        """Return a view of an input, which is taken before the kernel."""
        assert isinstance(body, ast.Call)
        of = body.args[0]
        inputs = {*self.names.values(), START}
        if not isinstance(of, ast.Name) or of.id not in inputs or self.layers:
            self.refuse(node, what(node), "only an input of the model is aligned so", WHOLE)
        return body

    def check_in_place(self, node: fx.Node, of: Any) -> None:
        """Refuse to write to a value that is read again, or that belongs to the caller."""
        if not isinstance(of, fx.Node) or of.op in ("placeholder", "get_attr"):
            why = "it writes to an input or a parameter"
            self.refuse(node, f"{what(node)} in place", why, "use the form that makes a new tensor")
        if len(of.users) > 1 or what(of) in SHARING:
            why = "what it writes to is read elsewhere"
            self.refuse(node, f"{what(node)} in place", why, "use the form that makes a new tensor")

    def output(self, node: fx.Node) -> None:
        """Read what forward returns."""
        [value] = node.args
        if not isinstance(value, fx.Node):
            self.refuse(node, "the result", f"it is a {type(value).__name__}, and a spec has one tensor")
        body = self.values[value]
        if not (isinstance(body, ast.Name) and body.id.startswith("%") and body.id != START):
            maker = what(value) if value.op != "placeholder" else "nothing"
            self.refuse(
                value, "the result", f"{maker} makes it, and no pointwise operation is there to fuse"
            )
        self.result = body.id

    def value(self, value: Any) -> ast.expr:
        """Return a value of the graph, or a number, as a formula.

        Raises:
            Unfit: it is neither.
        """
        if isinstance(value, fx.Node):
            if value not in self.values:
                raise Unfit(f"it reads {what(value)}, to which a layer is applied, too")
            return self.values[value]
        return self.constant(value)

    def constant(self, value: Any) -> ast.expr:
        """Return a number, by the name of the argument that it is."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Unfit(f"{value!r} is no number")
        text = label_of(value)
        if text is not None:
            return term(text, self.symbols)
        return number(plain(value))

    def refuse(self, node: fx.Node, shown: str, why: str, remedy: str = WHOLE) -> NoReturn:
        """Refuse a node at its line."""
        span = line_span(self.problem.path, line_of(self.problem, node) or forward_line(self.problem))
        raise NotLifted(span, node=shown, why=why, remedy=remedy)
