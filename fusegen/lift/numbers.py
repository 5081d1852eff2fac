"""Numbers that know their Python text, and keep it through arithmetic: ``self.width // self.groups``."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fusegen.lift.labels import Real, Whole, labelled, plain

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
}  # fmt: skip
PREFIXES = {"neg": "-{}", "pos": "{}", "abs": "abs({})"}
ORDERS = ("lt", "le", "gt", "ge", "eq", "ne")
MOST = 4096  # characters of a text, as of a formula: a longer one is lost


@dataclass
class Notes:
    """The numbers that were made of some first ones.

    Attributes:
        numbers: the values by their texts.
        compared: by the texts, the numbers that a condition compared them with.
    """

    numbers: dict[str, Any] = field(default_factory=dict)
    compared: dict[str, set[float]] = field(default_factory=dict)


class WholeText(Whole):
    """A whole number with its text; `notes` has all that were made of it."""

    notes: Notes
    __hash__ = int.__hash__


class RealText(Real):
    """A real number with its text."""

    notes: Notes
    __hash__ = float.__hash__


CARRIERS: dict[type, type] = {int: WholeText, float: RealText}


def carried(text: str, value: Any, notes: Notes) -> Any:
    """A number with its text, which `notes` then has; another value as it is."""
    carrier = CARRIERS.get(type(value))
    if carrier is None or len(text) > MOST:
        return value
    made = carrier(value)
    made.label, made.notes = text, notes
    notes.numbers[text] = value
    return made


def named_number(name: str, value: Any) -> Any:
    """A value with its name, which a number keeps through arithmetic."""
    return carried(name, value, Notes()) if type(value) in CARRIERS else labelled(name, value)


def operand(text: str) -> str:
    """A text as an operand: in brackets where an operator is in it."""
    depth = 0
    for character in text:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if character == " " and not depth:
            return f"({text})"
    return f"({text})" if text[:1] in "-~+" else text


def _text(value: Any) -> str:
    return operand(str(value.label) if hasattr(value, "label") else repr(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _binary(name: str, order: int) -> Callable[[Any, Any], Any]:
    """The method of an operator; of the second operand where the order is -1."""

    def compute(self: Any, other: Any) -> Any:
        if not _is_number(other):
            return NotImplemented
        one, two = (self, other)[::order]
        value = getattr(operator, name)(plain(one), plain(two))
        if isinstance(other, bool):  # a truth has no text, so that the result has none
            return value
        return carried(f"{_text(one)} {SIGNS[name]} {_text(two)}", value, self.notes)

    return compute


def _unary(name: str) -> Callable[[Any], Any]:
    def compute(self: Any) -> Any:
        value = getattr(operator, name)(plain(self))
        return carried(PREFIXES[name].format(_text(self)), value, self.notes)

    return compute


def _comparison(name: str) -> Callable[[Any, Any], Any]:
    def compare(self: Any, other: Any) -> Any:
        if not _is_number(other):
            return getattr(type(plain(self)), f"__{name}__")(plain(self), other)
        self.notes.compared.setdefault(self.label, set()).add(plain(other))
        return getattr(operator, name)(plain(self), plain(other))

    return compare


for _kind in CARRIERS.values():
    for _name in SIGNS:
        setattr(_kind, f"__{_name}__", _binary(_name, 1))
        setattr(_kind, f"__r{_name}__", _binary(_name, -1))
    for _name in PREFIXES:
        setattr(_kind, f"__{_name}__", _unary(_name))
    for _name in ORDERS:
        setattr(_kind, f"__{_name}__", _comparison(_name))
