"""Nodes of a graph as formulas of the nodes that they read."""

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from fusegen.models.lift.fx_graph import HOOKS, name_of, what
from fusegen.models.lift.labels import label_of, plain
from fusegen.models.lift.noted_arithmetic import REFLECTED
from fusegen.models.lift.regions.aliases import unsafe
from fusegen.models.lift.regions.extremes import NAMES
from fusegen.models.lift.regions.own_formulas import DTYPES, own_formula
from fusegen.models.lift.source_text import in_order
from fusegen.models.reader.aten_calls import calls_of, layer_of, value_of
from fusegen.models.reader.aten_table import ROWS, UNKNOWN, Rows, composed, fitted
from fusegen.models.reader.formula import Unfit, number
from fusegen.models.reader.operator_call import Call, Calls, Place, Result
from fusegen.models.reader.row_calls import CAST_ROWS, FOLDS, OF_ROWS, Reduced, reduced
from fusegen.models.reader.window_calls import WINDOWS, with_windows

OF_LIFT = "layer_norm"  # an operator in the tables of `lift`, whose graphs call kernels with layers
CONSTANT = "constant"  # the key of the number that a tensor of a graph holds
NODE, LABEL = "%", "$"  # before the name of a node, and the label of a number, in a formula
CONDITIONS = {"where": "condition", "masked_fill": "mask"}  # operators that read a mask, and its name
Value = Callable[[Any], ast.expr]


@dataclass(frozen=True)
class Pointwise:
    """A node that computes each element of its result from the same element of what it reads."""

    node: fx.Node  # it
    body: ast.expr  # its formula. ``%name`` is a node, and ``$label`` a number that knows where it is from
    rows: Reduced | None = None  # the dimensions that it reduces, or of which it computes of all elements
    reduces: fx.Node | None = None  # the node whose rows these are, or whose windows it reduces
    drops: Any = None  # of a dropout, whether it does: the path of a module's mode, or True

    @property
    def is_pool(self) -> bool:
        """True if it reduces windows."""
        return self.reduces is not None and self.rows is None

    @property
    def is_of_rows(self) -> bool:
        """True if it reduces rows, or computes of all elements of a row."""
        return self.rows is not None

    @property
    def is_fold(self) -> bool:
        """True if its value is one of a row."""
        return self.is_of_rows and (operation_of(self.node) in FOLDS or self.node.target in NAMES)

    @property
    def is_value(self) -> bool:
        """True if a region may end with it: it is no other name of its argument."""
        return not isinstance(self.body, ast.Name) and operation_of(self.node) != "detach"

    @property
    def is_cast(self) -> bool:
        """True if its tensors are of several dtypes."""
        values = [value_of(each) for each in (*self.reads, self.node) if not is_mask(each)]
        return len({each.dtype for each in values if isinstance(each, Tensor)}) > 1

    @property
    def reads(self) -> tuple[fx.Node, ...]:
        """The nodes in the formula, each once, in order."""
        known = {f"{NODE}{each.name}": each for each in self.node.all_input_nodes}
        names = [each.id for each in in_order(self.body) if isinstance(each, ast.Name)]
        return tuple(dict.fromkeys(known[name] for name in names if name in known))


def pointwise(node: fx.Node, table: Rows = ROWS) -> Pointwise:
    """Return a node as a formula, by the example values of it and of the nodes that it reads.

    Raises:
        Unfit: it is no pointwise operation of floats that the language has, in a clause.
    """
    calls = calls_of(node)
    layer = layer_of(node)
    if layer is not None and any(getattr(layer, hooks) for hooks in HOOKS):
        raise Unfit("it has hooks" if calls is not None else f"{type(layer).__name__} is a layer")
    if OF_LIFT in table and (own := own_formula(node, _value)):
        return Pointwise(node, **own)
    if calls is None or not calls.made or any(call.name not in table for call in calls.made):
        raise Unfit(UNKNOWN if layer is None else f"{type(layer).__name__} is a layer")
    if unsafe(node):
        raise Unfit(unsafe(node))
    rows, of = None, None
    value: Value = _value
    if any(call.name in OF_ROWS for call in calls.made):
        rows, of = _rows_of(node, calls)
    elif calls.name in WINDOWS:
        of, value = node.all_input_nodes[0], with_windows(_value)
    body = formula_of(node, calls, value, table)
    _check_tensors(node, calls, casts=CAST_ROWS.items() <= table.items())
    return Pointwise(node, body, rows, of)


def _rows_of(node: fx.Node, calls: Calls) -> tuple[Reduced, fx.Node]:
    """Return what the one call of a node reduces, and the node whose rows these are.

    Raises:
        Unfit: it reduces no neighbouring dimensions of a tensor, or runs several calls.
    """
    [call, *others] = calls.made
    read = call.arguments[call.overload._schema.arguments[0].name]
    of = node.all_input_nodes[read.number] if isinstance(read, Place) else None
    value = value_of(of) if of is not None else None
    found = reduced(call, value.dim()) if isinstance(value, Tensor) and not others else None
    if found is None or of is None:
        raise Unfit(UNKNOWN)
    labelled = (each for each in numbers_of(node) if found.groups and plain(each) == found.groups)
    return replace(found, groups=next(labelled, found.groups)), of


def formula_of(
    node: fx.Node,  # it
    calls: Calls,  # the operators that it runs
    value: Value,  # the formula of a node that it reads, or of a number
    rows: Rows = ROWS,  # the table of operators
) -> ast.expr:
    """Return the formula of a node.

    Raises:
        Unfit: the table has none.
    """
    read, numbers = node.all_input_nodes, numbers_of(node)

    def of(given: Any) -> ast.expr:
        match given:
            case Place(number=place):
                return value(read[place])
            case Result(number=place):
                return fitted(calls.made[place], of, rows)
        same = (each for each in numbers if type(given) in (int, float) and each == given)
        return value(next(same, given))  # with its label

    body = of(calls.result or Result(len(calls.made) - 1))  # of a tuple, to say why it is none
    if node.target is operator.truediv:  # of a number, which two operators divide
        return ast.BinOp(value(node.args[0]), ast.Div(), value(node.args[1]))
    if REFLECTED in node.meta and isinstance(body, ast.BinOp):
        return ast.BinOp(body.right, body.op, body.left)
    if len(calls.made) > 1 and composed(body):
        return ast.Call(ast.Name(composed(body)), [value(read[0])], [])
    return body


def numbers_of(node: fx.Node) -> list[Any]:
    """Return the numbers with labels among the arguments of a call, or of the layer that it calls."""
    layer = layer_of(node)
    own = [*vars(layer).values()] if layer is not None else [*map(constant_of, node.all_input_nodes)]
    return [each for each in (*node.args, *node.kwargs.values(), *own) if label_of(each) is not None]


def operation_of(node: fx.Node) -> str:
    """Return the operation of a node by the table, or what it calls where it runs several operators."""
    calls = calls_of(node)
    if calls is not None and calls.name:
        return calls.name
    layer = layer_of(node)
    return (type(layer).__name__ if layer is not None else name_of(node)).strip("_").lower().split(".")[0]


def constant_of(node: fx.Node) -> Any:
    """Return the number of a tensor that the graph makes of one; None for other nodes."""
    if node.op == "call_function" and node.target is torch.tensor and not isinstance(node.args[0], fx.Node):
        found = node.args[0]
        if isinstance(found, int | float) and not isinstance(found, bool):
            return found
    return node.meta.get(CONSTANT)


def is_mask(node: fx.Node) -> bool:
    """Return True if the value of a node is a tensor of truths."""
    value = value_of(node)
    return isinstance(value, Tensor) and value.dtype is torch.bool


def _check_tensors(node: fx.Node, calls: Calls, *, casts: bool) -> None:
    """Refuse dtypes and devices that one kernel cannot take; `casts` allows several dtypes of floats.

    Raises:
        Unfit: they are of several kinds, or no floats.
    """
    result = value_of(node)
    if not isinstance(result, Tensor):
        raise Unfit("it computes no tensor")
    if any(isinstance(size, torch.SymInt) and not size.node.has_hint() for size in result.shape):
        raise Unfit("its sizes are values of tensors")
    read = [each for each in node.all_input_nodes if constant_of(each) is None]
    floats = [each for each in read if not (is_mask(each) and _as_condition(node, calls, each))]
    values = [value_of(each) for each in floats]
    if result.dtype is not torch.bool:
        values.append(result)
    kinds = {(each.dtype, each.device) for each in values if isinstance(each, Tensor)}
    others = [each for each in kinds if each[0] not in DTYPES]
    if others:
        raise Unfit(
            f"it computes with {str(others[0][0]).removeprefix('torch.')}, and a kernel with floats"
        )
    if len({device for _, device in kinds} if casts else kinds) > 1:
        raise Unfit("its tensors are of several dtypes or devices")
    if not any(isinstance(value_of(each), Tensor) for each in read):
        raise Unfit("it reads no tensor")


def _as_condition(node: fx.Node, calls: Calls, mask: fx.Node) -> bool:
    """Return True if a node reads a mask as the condition of a choice, and in no other place."""
    place = Place(node.all_input_nodes.index(mask))
    readers: list[tuple[Call, str]] = [
        (call, name) for call in calls.made for name, each in call.arguments.items() if each == place
    ]
    return len(readers) == 1 and all(CONDITIONS.get(call.name) == name for call, name in readers)


def _value(value: Any) -> ast.expr:
    """Return an argument of a node in a formula.

    Raises:
        Unfit: it is neither a tensor nor a number.
    """
    if isinstance(value, fx.Node):
        constant = constant_of(value)
        if constant is None and not isinstance(value_of(value), Tensor):
            raise Unfit(f"it reads the number {what(value)}, which forward computes")
        return ast.Name(f"{NODE}{value.name}") if constant is None else _value(constant)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unfit(f"{value!r} is no number")
    label = label_of(value)
    if label:
        return ast.Name(f"{LABEL}{label}")
    return number(plain(value))
