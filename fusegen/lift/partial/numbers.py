"""Numbers that know their Python text, and keep it through arithmetic: ``self.width // self.groups``."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from fusegen.lift.labels import Real, Whole, plain
from fusegen.lift.partial.calls import operand

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
}  # fmt: skip
Numbers = dict[str, Any]  # by their texts


class WholeText(Whole):
    """A whole number with its text; `numbers` has all that were made of it."""

    numbers: Numbers


class RealText(Real):
    """A real number with its text."""

    numbers: Numbers


CARRIERS: dict[type, type] = {int: WholeText, float: RealText}


def carried(text: str, value: Any, numbers: Numbers) -> Any:
    """A number with its text, which `numbers` then has; another value as it is."""
    carrier = CARRIERS.get(type(value))
    if carrier is None:
        return value
    made = carrier(value)
    made.label, made.numbers = text, numbers
    numbers[text] = value
    return made


def _text(value: Any) -> str:
    return operand(str(value.label) if hasattr(value, "label") else repr(value))


def _binary(name: str, order: int) -> Callable[[Any, Any], Any]:
    """The method of an operator; of the second operand where the order is -1."""

    def compute(self: Any, other: Any) -> Any:
        if isinstance(other, bool) or not isinstance(other, int | float):
            return NotImplemented
        one, two = (self, other)[::order]
        value = getattr(operator, name)(plain(one), plain(two))
        return carried(f"{_text(one)} {SIGNS[name]} {_text(two)}", value, self.numbers)

    return compute


def _negative(self: Any) -> Any:
    return carried(f"-{_text(self)}", -plain(self), self.numbers)


for _kind in CARRIERS.values():
    for _name in SIGNS:
        setattr(_kind, f"__{_name}__", _binary(_name, 1))
        setattr(_kind, f"__r{_name}__", _binary(_name, -1))
    setattr(_kind, "__neg__", _negative)  # noqa: B010  # of classes in a table
