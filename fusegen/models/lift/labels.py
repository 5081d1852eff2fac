"""Values of the constructor's arguments that know their names.

torch.nn keeps the objects it is given, and so does a model's `self`: a number that comes back from either
still carries its label. `numbers` has those that keep a label through arithmetic.
"""

import copy
import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class Whole(int):
    """A whole number with a label."""

    label: str


class Real(float):
    """A real number with a label."""

    label: str


class Known(Real):
    """A real number with a label that a formula may have as it is, since nobody sets it in a call."""


class Word(str):
    """A word with a label."""

    label: str


class Sizes(tuple[Any, ...]):
    """A tuple with a label."""

    label: str


class Listed(list[Any]):
    """A list with a label."""

    label: str


CARRIERS: dict[type, type] = {int: Whole, float: Real, str: Word, tuple: Sizes, list: Listed}


def labelled(name: str, value: Any) -> Any:
    """Return the value with its name; as it is, where its type cannot carry one, as of True and None."""
    carrier = CARRIERS.get(type(value))
    if carrier is None:
        return value
    carried = carrier(value)
    carried.label = name
    return carried


def is_record(value: Any) -> bool:
    """Return True for an object that is no more than its attributes, as a dataclass of settings."""
    kind: Any = type(value)
    has_repr = kind.__repr__ is not object.__repr__
    is_record = dataclasses.is_dataclass(kind) or issubclass(kind, SimpleNamespace)
    return hasattr(value, "__dict__") and (is_record or not (has_repr or callable(value)))


def with_labels(text: str, value: Any, label: Callable[[str, Any], Any]) -> Any:
    """Return a value, perhaps a list, a dict or an object, whose numbers and words have labels.

    Args:
        text: that of the value.
        value: it.
        label: gives a number or a word its text.
    """
    kind = type(value)
    if kind in (tuple, list):
        items = (with_labels(f"{text}[{place}]", each, label) for place, each in enumerate(value))
        return labelled(text, kind(items))
    if kind is dict:
        return {key: with_labels(f"{text}[{key!r}]", each, label) for key, each in value.items()}
    if is_record(value):
        return with_fields(value, lambda name, each: with_labels(f"{text}.{name}", each, label))
    return label(text, value)


def with_fields(value: Any, change: Callable[[str, Any], Any]) -> Any:
    """Return a copy of an object with other attributes, of which a function makes each."""
    made = copy.copy(value)
    vars(made).update({name: change(name, each) for name, each in vars(value).items()})
    return made


def known(name: str, value: float) -> Known:
    """Return the number with its name, which a formula may leave out."""
    carried = Known(value)
    carried.label = name
    return carried


def label_of(value: Any) -> str | None:
    """Return the name of the argument that a value is, if it knows."""
    found = getattr(value, "label", None) if isinstance(value, tuple(CARRIERS.values())) else None
    return str(found) if found is not None else None


def plain(value: Any) -> Any:
    """Return the value without its label, and those in it."""
    if isinstance(value, tuple | list):
        return tuple(map(plain, value))
    carrier = next((kind for kind, of in CARRIERS.items() if isinstance(value, of)), None)
    return carrier(value) if carrier else value
