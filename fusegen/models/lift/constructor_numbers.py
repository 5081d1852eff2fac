"""Numbers that know their Python text, and keep it through arithmetic: ``self.width // self.groups``."""

import operator
from collections.abc import Callable
from typing import Any

from fusegen.models.lift.labels import Real, Whole, labelled, plain, with_labels

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
}  # fmt: skip
PREFIXES = {"neg": "-{}", "pos": "{}", "abs": "abs({})"}
MOST = 4096  # characters of a text, as of a formula: a longer one is lost


Numbers = dict[str, Any]  # by their texts
Function = Callable[..., Any]


class WholeText(Whole):
    """A whole number with its text.

    Attributes:
        numbers: all that were made of it.
        made: the function that made it and what that was given; None where it was not made by arithmetic.
    """

    numbers: Numbers
    made: tuple[Function, tuple[Any, ...]] | None = None


class RealText(Real):
    """A real number with its text, as `WholeText`."""

    numbers: Numbers
    made: tuple[Function, tuple[Any, ...]] | None = None


CARRIERS: dict[type, type] = {int: WholeText, float: RealText}


def carried(
    text: str,
    value: Any,
    numbers: Numbers,
    made: tuple[Function, tuple[Any, ...]] | None = None,  # the function that made it, and its arguments
) -> Any:
    """Return a number with its text, which `numbers` then has; another value as it is."""
    carrier = CARRIERS.get(type(value))
    if carrier is None or len(text) > MOST:
        return value
    number = carrier(value)
    number.label, number.numbers, number.made = text, numbers, made
    numbers[text] = value
    return number


def named_number(name: str, value: Any) -> Any:
    """Return a value with its name, which a number keeps through arithmetic; items have theirs."""

    def label(text: str, one: Any) -> Any:
        return carried(text, one, {}) if type(one) in CARRIERS else labelled(text, one)

    return with_labels(name, value, label)


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
    function = getattr(operator, name)

    def compute(self: Any, other: Any) -> Any:
        if not isinstance(other, int | float):
            return NotImplemented  # as of a size that is a symbol, which notes it
        one, two = (self, other)[::order]
        value = function(plain(one), plain(two))
        if isinstance(other, bool):  # a truth has no text, so that the result has none
            return value
        text = f"{_text(one)} {SIGNS[name]} {_text(two)}"
        return carried(text, value, self.numbers, (function, (one, two)))

    return compute


def _unary(name: str) -> Callable[[Any], Any]:
    function = abs if name == "abs" else getattr(operator, name)  # which a file has a name for

    def compute(self: Any) -> Any:
        text = PREFIXES[name].format(_text(self))
        return carried(text, function(plain(self)), self.numbers, (function, (self,)))

    return compute


for _kind in CARRIERS.values():
    for _name in SIGNS:
        setattr(_kind, f"__{_name}__", _binary(_name, 1))
        setattr(_kind, f"__r{_name}__", _binary(_name, -1))
    for _name in PREFIXES:
        setattr(_kind, f"__{_name}__", _unary(_name))
