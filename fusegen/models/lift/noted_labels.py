"""Labels of the numbers in operators: those of the numbers that the call which runs them was given.

A number of an operator is one of the call's where its name, its place or its value says so. Where none
does, as of a 2 of the model's beside another 2, the model's is left.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from fusegen.models.lift.fx_graph import name_of
from fusegen.models.lift.labels import label_of, plain
from fusegen.models.lift.noted_arguments import Labels, label_by_name, label_index, numbers

ITEMS = ("__getitem__", "__setitem__")
SIZES = "sym_"  # what the names of operators of sizes begin with
HELD = (torch.tensor,)  # functions whose result is a constant, which knows the call that made it


def give_labels(nodes: Sequence[fx.Node], function: Callable[..., Any], args: Any, kwargs: Any) -> Labels:
    """Give the numbers of the operators of a call their labels; return those that no number has."""
    given = [*numbers((args, kwargs))]
    labels: Labels = {str(label_of(each)): each for each in given if label_of(each) is not None}
    if not labels or function in HELD:
        return {}
    if getattr(function, "__name__", "") in ITEMS:
        return {} if label_index(nodes, args[1]) else labels
    own = [node for node in nodes if not name_of(node).startswith(SIZES)]
    left = label_by_name(own, function, args, kwargs)
    left = _label_by_place(own, given) if left is None else left
    return _label_by_value(own, given, labels) if left is None else left


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
    labelled = [each for each in wanted if label_of(each) is not None]
    counts = [len(_alike(nodes, each, [type(plain(each))])) for each in labelled]
    if len(found) != 1 or any(
        count != values.count(plain(each)) for count, each in zip(counts, labelled, strict=True)
    ):
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
