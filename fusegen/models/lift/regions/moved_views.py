"""Views between operations of one region: permutations, and reshapes that keep the order of elements.

A pointwise operation of a view is the view of that operation. So a view between two operations moves: in
front of the first, where it is one of the operands, or behind the second, where the first reduces rows,
which are the dimensions in front of the view. Then both may be in one region, and PyTorch takes the view.
"""

import math
import operator
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from fusegen.models.lift.fx_graph import LAYER, NO_GRAD, name_of
from fusegen.models.lift.regions.aliases import writes
from fusegen.models.lift.regions.growing import same_shape
from fusegen.models.lift.regions.naming import WISHED
from fusegen.models.lift.regions.pointwise import Pointwise, pointwise
from fusegen.models.reader.aten_calls import calls_of, hint, value_of
from fusegen.models.reader.aten_table import Rows
from fusegen.models.reader.formula import Unfit

ATEN: Any = torch.ops.aten
PERMUTE, RESHAPE = ATEN.permute.default, ATEN.reshape.default
Call = tuple[Any, tuple[Any, ...]]  # an operator, and its arguments behind the tensor
INVERSES = {ATEN.squeeze.dim: ATEN.unsqueeze.default, ATEN.unsqueeze.default: ATEN.squeeze.dim}
RESHAPES = frozenset("view reshape flatten unflatten unsqueeze squeeze view_as reshape_as".split())


def move_views(graph: fx.Graph, table: Rows) -> None:
    """Move the views of a graph with example values that part operations of one region."""
    known = {node: part for node in graph.nodes if (part := _part(node, table))}
    left = [*graph.nodes]
    while left:
        view = left.pop()
        if _is_view(view) and view.users and all(each in known for each in view.users):
            part = known.get(view.all_input_nodes[0])
            if part is not None and _is_pointwise(part) and [*part.node.users] == [view]:
                left += hoist(view, part.node)
    roots = {node for node, part in known.items() if part.is_of_rows and not part.is_fold}
    left = [node for node in graph.nodes if _is_view(node)]
    while left:  # of views behind each other the last one moves first
        view = left.pop()
        of = view.all_input_nodes[0]
        reader = _only_reader(view, known)
        if _is_of_rows(of, roots) and reader is not None and _sink(view, reader):
            roots.add(reader)
            again = [each for each in (of, *reader.users) if _is_view(each)]
            left = [*(each for each in left if each not in again), *again]


def _is_of_rows(node: fx.Node, roots: Collection[fx.Node]) -> bool:
    """Tell if a node is an operation of rows, or behind one, or a view of such."""
    while node not in roots and _is_view(node):
        node = node.all_input_nodes[0]
    return node in roots


def permutation_of(node: fx.Node) -> tuple[int, ...] | None:
    """Return the dimensions of what a permutation reads, in the order of its result; None of others."""
    value = value_of(node)
    calls = calls_of(node) if isinstance(node.target, OpOverload) else None
    if calls is None or len(node.all_input_nodes) != 1 or not isinstance(value, Tensor):
        return None
    rank = value.dim()
    dims = [*range(rank)]
    match calls.name, [*calls.made[:1]]:
        case "permute", [call]:
            return tuple(each % rank for each in call.arguments["dims"])
        case "transpose", [call]:
            one, other = (call.arguments[name] % rank for name in ("dim0", "dim1"))
            dims[one], dims[other] = other, one
            return tuple(dims)
    return None


def _part(node: fx.Node, table: Rows) -> Pointwise | None:
    try:
        return pointwise(node, table) if node.op.startswith("call_") else None
    except Unfit:
        return None


def _is_pointwise(part: Pointwise) -> bool:
    """Tell if an operation computes of views the view of what it computes.

    A layer that may be called again does not, as it knows its channels by their place, nor does a dropout,
    whose mask is drawn in the order of the elements.
    """
    is_placed = part.reduces is not None or part.is_of_rows or LAYER in part.node.meta or part.drops
    return not is_placed and part.is_value and not writes(part.node)


def _is_view(node: fx.Node) -> bool:
    """Tell if a node is a permutation or a reshape of a tensor."""
    if permutation_of(node) is not None:
        return True
    if not isinstance(node.target, OpOverload) or name_of(node) not in RESHAPES:
        return False
    of = value_of(node.all_input_nodes[0])
    is_one = sum(isinstance(value_of(each), Tensor) for each in node.all_input_nodes) == 1
    return is_one and isinstance(of, Tensor) and of.dtype == value_of(node).dtype


def _only_reader(view: fx.Node, known: Mapping[fx.Node, Pointwise]) -> fx.Node | None:
    """Return the pointwise operation that alone reads a view that alone reads a value."""
    of = view.all_input_nodes[0]
    readers = [*view.users]
    if [*of.users] != [view] or len(readers) != 1:
        return None
    part = known.get(readers[0])
    fits = part is not None and _is_pointwise(part) and same_shape(value_of(readers[0]), value_of(view))
    return readers[0] if fits else None


def hoist(view: fx.Node, node: fx.Node) -> list[fx.Node]:
    """Have an operation read views of its operands, and be what its only reader, a view, is.

    Returns:
        These views; none where an operand has none.
    """
    operands = [each for each in node.all_input_nodes if _rank(each)]
    calls = [_view_like(view, each, node) for each in operands]
    if None in calls:
        return []
    made = [
        _read_by(node, each, call) for each, call in zip(operands, calls, strict=True) if call is not None
    ]
    node.meta["val"] = value_of(view)
    view.replace_all_uses_with(node)
    node.graph.erase_node(view)
    return made


def _sink(view: fx.Node, reader: fx.Node) -> bool:
    """Have an operation read what a view is of, and be read by the view; tell if that was done."""
    of, whole = view.all_input_nodes[0], value_of(reader)
    others = [each for each in reader.all_input_nodes if each is not view and _rank(each)]
    calls = [_view_back(view, each, of) for each in others]
    if None in calls:
        return False
    for each, call in zip(others, calls, strict=True):
        assert call is not None
        _read_by(reader, each, call)
    reader.replace_input_with(view, of)
    reader.meta["val"] = value_of(of).new_empty(value_of(of).shape, dtype=whole.dtype)
    with reader.graph.inserting_after(reader):
        moved = reader.graph.node_copy(view, lambda each: reader if each is of else each)
    reader.replace_all_uses_with(moved, lambda user: user is not moved)
    moved.meta = {**view.meta, "val": whole}
    reader.graph.erase_node(view)
    return True


def _read_by(reader: fx.Node, operand: fx.Node, call: Call) -> fx.Node:
    """Have a node read an operand through a view, which is returned."""
    called, given = call
    value = value_of(operand)
    missing = len(given[0]) - _rank(operand) if called is PERMUTE else 0
    graph, made = reader.graph, operand
    with graph.inserting_before(reader):
        if missing > 0:
            index: Any = (*[None] * missing, ...)
            made, value = graph.call_function(operator.getitem, (made, index)), value[index]
            _describe(made, operand, reader, value)
        view = graph.call_function(called, (made, *given))
    reader.replace_input_with(operand, view)
    _describe(view, operand, reader, called(value, *fx.map_arg(given, value_of)))
    return view


def _describe(view: fx.Node, of: fx.Node, reader: fx.Node, value: Tensor) -> None:
    """Give a new view of a node its example value, its name and the line of its reader."""
    wished = of.meta.get(WISHED) or (str(of.target) if of.op == "get_attr" else "")
    view.meta = {key: each for key, each in of.meta.items() if key == NO_GRAD}
    view.meta |= {"val": value, WISHED: wished}
    view.stack_trace = reader.stack_trace


def _view_like(view: fx.Node, operand: fx.Node, whole: fx.Node) -> Call | None:
    """Return the view of an operand that its operation's view is; None where it has none."""
    dims = permutation_of(view)
    if dims is not None:
        return PERMUTE, ([*dims],)
    if same_shape(value_of(operand), value_of(whole)):
        is_late = any(not each < whole for each in view.all_input_nodes[1:])  # a size that is made behind
        called = RESHAPE if view.target is ATEN.view.default else view.target
        return None if view.kwargs or is_late else (called, view.args[1:])
    return _reshaped(operand, whole, view)


def _view_back(view: fx.Node, operand: fx.Node, of: fx.Node) -> Call | None:
    """Return the view of an operand that reads a view's result, in the shape that the view is of."""
    dims = permutation_of(view)
    if dims is not None:
        return PERMUTE, ([*map(dims.index, range(len(dims)))],)
    if same_shape(value_of(operand), value_of(view)):
        given = (*view.args[1:], *view.kwargs.values())
        inverse = INVERSES.get(view.target) if _rank(view) != _rank(of) else None
        return None if inverse is None else (inverse, given)
    return _reshaped(operand, view, of)


def _reshaped(operand: fx.Node, before: fx.Node, behind: fx.Node) -> Call | None:
    """Return the view of a parameter that broadcasts to a reshaped tensor; None where it has none.

    Where dimensions are merged or split, it varies along all of them or along none.
    """
    if operand.op != "get_attr":  # whose sizes are no numbers of the model
        return None
    old, new = (deque(value_of(each).shape) for each in (before, behind))
    own = deque([1] * (len(old) - _rank(operand)) + [*value_of(operand).shape])
    sizes: list[int] = []
    while old or new:
        taken, made = [(old.popleft(), own.popleft())] if old else [], [new.popleft()] if new else []
        while (whole := math.prod(size for size, _ in taken)) != (wished := math.prod(made)):
            side = old if whole < wished else new
            if not side:
                return None
            if side is old:
                taken.append((old.popleft(), own.popleft()))
            else:
                made.append(new.popleft())
        is_whole = [size == each for size, each in taken]
        if all(is_whole):
            sizes += made
        elif all(each == 1 for _, each in taken):
            sizes += [1] * len(made)
        else:
            return None
    known = [hint(each) for each in sizes]
    is_one = sum(each != 1 for each in known) == 1  # which the constructor may decide
    return RESHAPE, ([-1 if each != 1 and is_one else each for each in known],)


def _rank(node: fx.Node) -> int:
    """Return the dimensions of a tensor; 0 of other values."""
    value = value_of(node)
    return value.dim() if isinstance(value, Tensor) else 0
