"""Labels of the items of an index, and of the arguments of the operator that is called as a function."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import fx
from torch._ops import OpOverload

from fusegen.models.lift.fx_graph import name_of
from fusegen.models.lift.labels import label_of, plain

WHOLE = (0, 2**63 - 1)  # the ends of a slice of all of a dimension
USUAL = (*WHOLE, 1)  # the ends and the step of a slice that has none
Labels = dict[str, Any]  # labelled numbers and words by their labels


class Unlike(Exception):
    """The arguments of a call are not those of an operator."""


def numbers(value: Any) -> Iterator[Any]:
    """Yield the numbers and words in arguments, in order."""
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        yield value
    elif isinstance(value, slice):
        yield from numbers([value.start, value.stop, value.step])
    elif isinstance(value, dict | tuple | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers(each)


def label_index(nodes: Sequence[fx.Node], index: Any) -> bool:
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
    known = (pair for pair in zip(own, wanted, strict=True) if all(isinstance(each, int) for each in pair))
    if any(one != plain(other) for one, other in known):
        return False
    last = max((k for k, each in enumerate(given) if label_of(each) is not None), default=-1)
    count = max(last + 1, len(node.args) - 2)
    laid = [b if label_of(b) is not None else a for a, b in zip(own, given, strict=True)]
    node.args = (*node.args[:2], *laid[:count])
    return True


def label_by_name(
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
    rest = (node for node in nodes if node is not own[0])
    others = [plain(each) for node in rest for each in numbers((node.args, node.kwargs))]
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
