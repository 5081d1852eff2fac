"""Operators of a graph as calls of PyTorch's functions and methods, as a file has them.

Each call is checked: it runs the operator with its arguments, and no other. An operator for which none does
is called by its own name, ``torch.ops.aten``.
"""

import math
import operator
from collections.abc import Callable, Container, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import SymInt, Tensor, fx
from torch._ops import OpOverload

from fusegen.models.lift.fx_graph import name_of
from fusegen.models.lift.labels import label_of, plain
from fusegen.models.lift.noted_arithmetic import REFLECTED
from fusegen.models.lift.noted_calls import METHOD, PLACED
from fusegen.models.reader.aten_calls import calls_of, hint, value_of
from fusegen.models.reader.operator_call import Place

Named = tuple[str, Any, tuple[Any, ...], dict[str, Any]]  # a call: its kind, what it calls, its arguments
SIGNS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "pow": operator.pow, "matmul": operator.matmul, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "eq": operator.eq, "ne": operator.ne, "neg": operator.neg, "rsub": operator.sub,
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_not": operator.invert,
}  # fmt: skip
SIZES = {"sym_size": "size", "sym_numel": "numel", "sym_stride": "stride"}  # methods of tensors
ATTRIBUTES = {"numpy_T": "T", "matrix_H": "H", **{name: name for name in ("mT", "mH", "real", "imag")}}
OF_SIZES: dict[Any, Callable[..., Any]] = {  # functions of sizes, by those of symbols
    torch.sym_float: float, torch.sym_int: int, torch.sym_max: max, torch.sym_min: min,
    **{getattr(torch, f"_sym_{name}"): getattr(math, name)
       for name in dir(math) if hasattr(torch, f"_sym_{name}")},
}  # fmt: skip
METHODS = frozenset(  # that files call as methods
    "view reshape permute transpose expand expand_as view_as unsqueeze squeeze flatten unflatten "
    "contiguous to type_as chunk split detach clone repeat select narrow masked_fill".split()
)
UNCHECKED = frozenset((*SIZES.values(), "contiguous"))  # methods that may run no operator
FUNCTIONS = {"log_sigmoid": "logsigmoid", "cross_entropy_loss": "cross_entropy"}  # by their operators
NAMES = {"train": "training"}  # of arguments of functions, by those of operators
SIZED = frozenset("rand randn zeros ones empty".split())  # functions that take sizes one by one
SPACES = (("linalg_", torch.linalg), ("special_", torch.special), ("fft_", torch.fft))
WHOLE_LENGTH = 2**63 - 1  # the end of a slice that has none


def make_readable(graph: fx.Graph, inside: Container[fx.Node]) -> None:
    """Let a graph call what a file calls, but for nodes inside of regions, and nothing that is not read."""
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and not node.is_impure():
            graph.erase_node(node)
    for node in [*graph.nodes]:
        if node in inside or node.op != "call_function":
            continue
        is_read = any(user in inside for user in node.users)
        if isinstance(node.target, OpOverload) and (is_read or not _is_whole(node)):
            _name(node)
        elif isinstance(node.target, OpOverload):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        if node.target is torch.sym_float and all(user.target in OF_SIZES for user in node.users):
            node.replace_all_uses_with(node.args[0])  # functions of math take whole numbers, too
        node.target = OF_SIZES.get(node.target, node.target)
    _without_meta(graph)


def _is_whole(node: fx.Node) -> bool:
    """Return True if a node is a slice of all of a dimension."""
    given = node.args[2:]
    is_known = any(label_of(each) is not None for each in given)
    return name_of(node) == "slice" and not is_known and given in ((), (0,), (0, WHOLE_LENGTH))


def _name(node: fx.Node) -> None:
    """Let a node call the first of what a file may call that runs its operator alone."""
    own, original = _operator(node), (node.op, node.target, node.args, dict(node.kwargs))
    for call in [*_candidates(node)]:
        _set(node, call)
        if own is None or call[1] in UNCHECKED or _reads_none(node) or _operator(node) == own:
            return
    _set(node, original)


def _set(node: fx.Node, call: Named) -> None:
    node.op, node.target, node.args, node.kwargs = call


def _operator(node: fx.Node) -> Any:
    """Return the only operator that a node runs and its arguments, with the sizes of the example."""
    call = node.op, node.target, node.args, dict(node.kwargs)
    sized: Any = lambda each: hint(value_of(each)) if _is_size(each) else each  # noqa: E731
    node.args, node.kwargs = fx.map_arg((node.args, dict(node.kwargs)), sized)
    calls, read = calls_of(node), [*node.all_input_nodes]
    _set(node, call)

    def shown(each: Any) -> Any:
        if isinstance(each, tuple | list):
            return [*map(shown, each)]
        if not isinstance(each, Place):
            return plain(each)
        of = read[each.number]
        return (
            value_of(of) if isinstance(value_of(of), bool) else of.name
        )  # a mode is no input of operators

    if calls is None or len(calls.made) != 1:
        return None if calls is None else ...
    arguments = calls.made[0].arguments
    return calls.made[0].overload, {name: shown(each) for name, each in arguments.items()}


def _reads_none(node: fx.Node) -> bool:
    """Return True if a call reads no tensor."""
    return not any(isinstance(value_of(each), Tensor) for each in node.all_input_nodes)


def _is_size(node: fx.Node) -> bool:
    """Return True if the value of a node is a whole number."""
    value = value_of(node)
    return isinstance(value, int | SymInt) and not isinstance(value, bool)


def _candidates(node: fx.Node) -> Iterator[Named]:
    """Yield calls that may run an operator, those first that are read most easily."""
    name = name_of(node)
    args, kwargs = tuple(node.args), dict(node.kwargs)
    if name in SIZES:
        yield "call_method", SIZES[name], args, {}
    if name in ATTRIBUTES:
        yield "call_function", getattr, (args[0], ATTRIBUTES[name]), {}
    if _reads_none(node):
        yield _made(node, name)
        return
    if name in SIGNS and not kwargs and len(args) <= 2:
        is_reflected = name == "rsub" or REFLECTED in node.meta
        yield "call_function", SIGNS[name], args[::-1] if is_reflected else args, {}
    given = [*_given(node)]
    of_space = [
        (getattr(space, name.removeprefix(word), None)) for word, space in SPACES if name.startswith(word)
    ]
    functions = [
        *of_space,
        getattr(torch, name, None),
        getattr(F, FUNCTIONS.get(name, name), None),
    ]
    if not hasattr(Tensor, name):
        functions = functions[::-1]
    methods = [("call_method", name, spread, named) for spread, named in given if hasattr(Tensor, name)]
    called = [("call_function", each, *one) for each in functions if each is not None for one in given]
    is_method = name in METHODS or name.endswith("_") or METHOD in node.meta
    yield from (*methods, *called) if is_method else (*called, *methods)


def _given(node: fx.Node) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yield the arguments of an operator as functions of Python may take them."""
    assert isinstance(node.target, OpOverload)
    args, kwargs, name = tuple(node.args), dict(node.kwargs), name_of(node)
    if name in METHODS or name.endswith("_"):
        [*lists] = (each for each in args[1:] if isinstance(each, list | tuple))
        if len(args) == 2 and lists:
            yield (args[0], *lists[0]), kwargs
        yield args, kwargs
    names = [NAMES.get(each.name, each.name) for each in node.target._schema.arguments]
    first = next((k for k, each in enumerate(args) if _is_plain(each)), len(args))
    rest = dict(zip(names[first:], args[first:], strict=False))
    yield args[:first], {**{key: _one(each) for key, each in rest.items()}, **kwargs}
    yield args[:first], {**rest, **kwargs}
    yield tuple(map(_one, args)), kwargs
    yield args, kwargs


def _is_plain(value: Any) -> bool:
    """Return True if an argument has no tensor in it."""
    items = value if isinstance(value, tuple | list) else (value,)
    return not any(isinstance(each, fx.Node) for each in items)


def _one(value: Any) -> Any:
    """Return the item of a list of one number."""
    is_one = isinstance(value, list | tuple) and len(value) == 1 and not isinstance(value[0], fx.Node)
    return value[0] if is_one else value


def _made(node: fx.Node, name: str) -> Named:
    """Return the call that makes a tensor, on the device of the first input where the model names one."""
    kwargs = {
        key: each for key, each in node.kwargs.items() if key not in ("device", "pin_memory", "layout")
    }
    if PLACED in node.meta:
        kwargs["device"] = node.kwargs["device"]
    given: Any = node.args[0] if name in SIZED and len(node.args) == 1 else node.args
    return "call_function", getattr(torch, name), tuple(given), kwargs


def _without_meta(graph: fx.Graph) -> None:
    """Read the device of the first input where a model that has no memory has the device `meta`."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for node in [*graph.nodes]:
        given = (*node.args, *node.kwargs.values())
        if inputs and any(each == torch.device("meta") for each in given if isinstance(each, torch.device)):
            with graph.inserting_before(node):
                device = graph.call_function(getattr, (inputs[0], "device"))
            device.stack_trace = node.stack_trace
            put = lambda each: device if each == torch.device("meta") else each  # noqa: B023, E731
            node.args = fx.node.map_aggregate(node.args, put)
            node.kwargs = fx.node.map_aggregate(node.kwargs, put)
