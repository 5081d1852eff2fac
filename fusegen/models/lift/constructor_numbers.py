"""Numbers that know their Python text, and keep it through arithmetic: ``self.width // self.groups``."""

import operator
from collections.abc import Callable
from typing import Any

from torch import SymFloat, SymInt

from fusegen.models.lift.labels import Real, Whole, labelled, plain
from fusegen.models.reader.recorded_calls import note_arithmetic

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
}  # fmt: skip
PREFIXES = {"neg": "-{}", "pos": "{}", "abs": "abs({})"}
MOST = 4096  # characters of a text, as of a formula: a longer one is lost


Numbers = dict[str, Any]  # by their texts


class WholeText(Whole):
    """A whole number with its text; `numbers` has all that were made of it."""

    numbers: Numbers


class RealText(Real):
    """A real number with its text."""

    numbers: Numbers


CARRIERS: dict[type, type] = {int: WholeText, float: RealText}


def carried(text: str, value: Any, numbers: Numbers) -> Any:
    """Return a number with its text, which `numbers` then has; another value as it is."""
    carrier = CARRIERS.get(type(value))
    if carrier is None or len(text) > MOST:
        return value
    made = carrier(value)
    made.label, made.numbers = text, numbers
    numbers[text] = value
    return made


def named_number(name: str, value: Any) -> Any:
    """A value with its name, which a number keeps through arithmetic, and items of a sequence as theirs."""
    if type(value) in (tuple, list):
        items = (named_number(f"{name}[{place}]", each) for place, each in enumerate(value))
        return labelled(name, type(value)(items))
    return carried(name, value, {}) if type(value) in CARRIERS else labelled(name, value)


def operand(text: str) -> str:
    """Return a text as an operand: in brackets where an operator is in it."""
    depth = 0
    for character in text:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if character == " " and not depth:
            return f"({text})"
    return f"({text})" if text[:1] in "-~+" else text


def _text(value: Any) -> str:
    return operand(str(value.label) if hasattr(value, "label") else repr(value))


def _binary(name: str, order: int) -> Callable[[Any, Any], Any]:
    """Return the method of an operator; of the second operand where the order is -1."""

    def compute(self: Any, other: Any) -> Any:
        if not isinstance(other, int | float | SymInt | SymFloat):
            return NotImplemented
        one, two = (self, other)[::order]
        value = getattr(operator, name)(plain(one), plain(two))
        if isinstance(other, SymInt | SymFloat):
            note_arithmetic(getattr(operator, name), (one, two), value)
            return value
        if isinstance(other, bool):  # a truth has no text, so that the result has none
            return value
        return carried(f"{_text(one)} {SIGNS[name]} {_text(two)}", value, self.numbers)

    return compute


def _unary(name: str) -> Callable[[Any], Any]:
    def compute(self: Any) -> Any:
        value = getattr(operator, name)(plain(self))
        return carried(PREFIXES[name].format(_text(self)), value, self.numbers)

    return compute


for _kind in CARRIERS.values():
    for _name in SIGNS:
        setattr(_kind, f"__{_name}__", _binary(_name, 1))
        setattr(_kind, f"__r{_name}__", _binary(_name, -1))
    for _name in PREFIXES:
        setattr(_kind, f"__{_name}__", _unary(_name))
