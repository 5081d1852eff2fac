"""Labels of the numbers in operators: those of the numbers that the call which runs them was given.

A number of an operator is one of the call's where its name, its place or its value says so. Where none
does, as of a 2 of the model's beside another 2, the model's is left.
"""

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from fusegen.models.lift.fx_graph import name_of
from fusegen.models.lift.labels import label_of, plain

ITEMS = ("__getitem__", "__setitem__")
WHOLE = (0, 2**63 - 1)  # the ends of a slice of all of a dimension
USUAL = (*WHOLE, 1)  # the ends and the step of a slice that has none
SIZES = "sym_"  # what the names of operators of sizes begin with
HELD = (torch.tensor,)  # functions whose result is a constant, which knows the call that made it
Labels = dict[str, Any]  # labelled numbers and words by their labels


class Unlike(Exception):
    """The arguments of a call are not those of an operator."""


def give_labels(nodes: Sequence[fx.Node], function: Callable[..., Any], args: Any, kwargs: Any) -> Labels:
    """Give the numbers of the operators of a call their labels; return those that no number has."""
    given = [*numbers((args, kwargs))]
    labels: Labels = {str(label_of(each)): each for each in given if label_of(each) is not None}
    if not labels or function in HELD:
        return {}
    if getattr(function, "__name__", "") in ITEMS:
        return {} if _label_index(nodes, args[1]) else labels
    own = [node for node in nodes if not name_of(node).startswith(SIZES)]
    left = _label_by_name(own, function, args, kwargs)
    left = _label_by_place(own, given) if left is None else left
    return _label_by_value(own, given, labels) if left is None else left


def numbers(value: Any) -> Iterator[Any]:
    """Yield the numbers and words in arguments, in order."""
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        yield value
    elif isinstance(value, slice):
        yield from numbers([value.start, value.stop, value.step])
    elif isinstance(value, dict | tuple | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers(each)


def _put(node: fx.Node, found: Mapping[int, Any]) -> None:
    """Have an operator read other numbers, by their places among its own."""
    places = itertools.count()

    def put(value: Any) -> Any:
        is_number = isinstance(value, int | float | str) and not isinstance(value, bool)
        return found.get(next(places), value) if is_number else value

    node.args = fx.node.map_aggregate(node.args, put)
    node.kwargs = fx.node.map_aggregate(node.kwargs, put)


def _own(node: fx.Node) -> list[Any]:
    return [*numbers((node.args, node.kwargs))]


# Indices


def _label_index(nodes: Sequence[fx.Node], index: Any) -> bool:
    """Label the slices and the places of an index; tell if each item has its operator.

    A slice of all of a dimension has one where the size is a symbol, and none where it is a number.
    """
    left = {name: [node for node in nodes if name_of(node) == name] for name in ("slice", "select")}
    for item in index if isinstance(index, tuple) else (index,):
        if isinstance(item, slice):
            given = (item.start, item.stop, item.step)
            node = next(iter(left["slice"]), None)
            if item == slice(None) and (node is None or node.args[2:] != WHOLE):
                continue
            if node is None or not _label_slice(node, given):
                return False
            left["slice"].pop(0)
        elif isinstance(item, int) and not isinstance(item, bool):
            if not left["select"]:
                return False
            node = left["select"].pop(0)
            if label_of(item) is not None:
                node.args = (*node.args[:2], item)
    return not any(left.values())


def _label_slice(node: fx.Node, given: tuple[Any, ...]) -> bool:
    """Label the ends and the step of a slice; tell if it is that."""
    own = (*node.args[2:], *USUAL[len(node.args) - 2 :])
    wanted = [usual if each is None else each for usual, each in zip(USUAL, given, strict=True)]
    if any(
        isinstance(a, int) and isinstance(b, int) and a != plain(b)
        for a, b in zip(own, wanted, strict=True)
    ):
        return False
    last = max((k for k, each in enumerate(given) if label_of(each) is not None), default=-1)
    count = max(last + 1, len(node.args) - 2)
    laid = [b if label_of(b) is not None else a for a, b in zip(own, given, strict=True)]
    node.args = (*node.args[:2], *laid[:count])
    return True


# Arguments by their names


def _label_by_name(
    nodes: Sequence[fx.Node], function: Callable[..., Any], args: Any, kwargs: Any
) -> Labels | None:
    """Label the arguments of the operator that is called as the function; None where none is."""
    name = getattr(function, "__name__", "")
    [*own] = (node for node in nodes if name_of(node).strip("_") == name.strip("_"))
    if len(own) != 1:
        return None
    try:
        bound = _bound(own[0], function, args, kwargs)
        laid = {key: _laid(own[0], key, value) for key, value in bound.items() if _has_label(value)}
    except Unlike:
        return None
    names = _names(own[0])
    placed = {names.index(key): value for key, value in laid.items()}
    own[0].kwargs = {
        **own[0].kwargs,
        **{key: value for key, value in laid.items() if names.index(key) >= len(own[0].args)},
    }
    own[0].args = tuple(placed.get(k, value) for k, value in enumerate(own[0].args))
    others = [plain(each) for node in nodes if node is not own[0] for each in _own(node)]
    found = [each for value in laid.values() for each in numbers(value) if label_of(each) is not None]
    return {str(label_of(each)): each for each in found if plain(each) in others}


def _names(node: fx.Node) -> list[str]:
    assert isinstance(node.target, OpOverload)
    return [each.name for each in node.target._schema.arguments]


def _has_label(value: Any) -> bool:
    return any(label_of(each) is not None for each in numbers(value))


def _bound(node: fx.Node, function: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    """Return what a call was given by the names of its operator's arguments."""
    names, given = _names(node), [*args]
    own: list[str] = names
    if inspect.isfunction(function):
        own = [*inspect.signature(function).parameters]
    elif len(given) > 1 and all(isinstance(each, int) for each in given[1:]):
        given = [given[0], given[1:]] if _is_list(node, 1) else given
    if not names or len(given) > len(own):
        raise Unlike
    bound = {**dict(zip(own, given, strict=False)), **kwargs}
    if any(key not in names and _has_label(value) for key, value in bound.items()):
        raise Unlike
    return {key: value for key, value in bound.items() if key in names}


def _is_list(node: fx.Node, place: int) -> bool:
    """Return True if an argument of an operator is a list, whose items a method takes one by one."""
    return len(node.args) > place and isinstance(node.args[place], list | tuple)


def _laid(node: fx.Node, key: str, given: Any) -> Any:
    """Return an argument of an operator with the labels of what its call was given.

    Raises:
        Unlike: it is another value.
    """
    assert isinstance(node.target, OpOverload)
    place = _names(node).index(key)
    schema = node.target._schema.arguments[place]
    usual = schema.default_value if schema.has_default_value() else None
    own = node.args[place] if place < len(node.args) else node.kwargs.get(key, usual)
    if isinstance(own, list | tuple):
        each = given if isinstance(given, list | tuple) else [given] * len(own)
        if len(each) != len(own) or any(map(_differ, own, each)):
            raise Unlike
        return [b if label_of(b) is not None else a for a, b in zip(own, each, strict=True)]
    if isinstance(given, list | tuple) and len(given) == 1:
        [given] = given
    if isinstance(given, list | tuple) or _differ(own, given):
        raise Unlike
    return given


def _differ(own: Any, given: Any) -> bool:
    return label_of(given) is not None and own != plain(given)


# Arguments by their places and values


def _label_by_place(nodes: Sequence[fx.Node], given: Sequence[Any]) -> Labels | None:
    """Label the only numbers of operators that are those of the call, in order; None where none are."""
    wanted = [each for each in given if not isinstance(each, str) or label_of(each) is not None]
    values = [plain(each) for each in wanted]
    found: list[tuple[fx.Node, list[int]]] = []
    for node in nodes:
        own = [(k, each) for k, each in enumerate(_own(node)) if not isinstance(each, str)]
        for first in range(len(own) - len(values) + 1):
            part = own[first : first + len(values)]
            if [plain(each) for _, each in part] == values:
                found.append((node, [k for k, _ in part]))
    if len(found) != 1:
        return None
    [(node, places)] = found
    pairs = zip(places, wanted, strict=True)
    _put(node, {k: each for k, each in pairs if label_of(each) is not None})
    return {}


def _label_by_value(nodes: Sequence[fx.Node], given: Sequence[Any], labels: Labels) -> Labels:
    """Label numbers that only one of the call's may be; return the labelled numbers that are none."""
    left: Labels = {}
    for label, number in labels.items():
        own = _alike(nodes, number, [type(plain(number))]) or _alike(nodes, number, [int, float])
        kinds = {type(plain(each)) for _, _, _, each in own}
        others = (each for each in given if label_of(each) != label and type(plain(each)) in kinds)
        is_only = plain(number) not in map(plain, others)
        if own and is_only and len({(node, group) for node, group, *_ in own}) == 1:
            _put(own[0][0], {k: number for _, _, k, _ in own})
        elif own or not _is_default(nodes, number):
            left[label] = number
    return left


def _alike(
    nodes: Sequence[fx.Node], number: Any, kinds: Sequence[type]
) -> list[tuple[fx.Node, int, int, Any]]:
    """Return the numbers of operators of some types that have a value, with their arguments and places."""
    return [
        (node, group, k, each)
        for node in nodes
        for k, (group, each) in enumerate(_grouped(node))
        if type(plain(each)) in kinds and plain(each) == plain(number)
    ]


def _grouped(node: fx.Node) -> Iterator[tuple[int, Any]]:
    """Yield the numbers of an operator, each with the place of its argument."""
    for group, value in enumerate((*node.args, *node.kwargs.values())):
        yield from ((group, each) for each in numbers(value))


def _is_default(nodes: Sequence[fx.Node], number: Any) -> bool:
    """Give an operator a labelled number that is its only default of this value; tell if there is one."""
    found = [
        (node, argument.name)
        for node in nodes
        if isinstance(node.target, OpOverload)
        for argument in node.target._schema.arguments[len(node.args) :]
        if argument.has_default_value() and argument.name not in node.kwargs
        and not isinstance(argument.default_value, bool) and argument.default_value == plain(number)
    ]  # fmt: skip
    if len(found) != 1:
        return False
    [(node, name)] = found
    node.kwargs = {**node.kwargs, name: number}
    return True
