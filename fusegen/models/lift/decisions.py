"""Numbers of the constructor that decide what code runs, or that it reads otherwise than by arithmetic.

A trace holds their values: ``if self.alpha > 0``, ``for _ in range(self.n)``, ``int(self.alpha)`` and
``math.sqrt(self.alpha)`` are right for these alone. One read can be made to give another result, so that it
is seen what it decides.
"""

import contextlib
import math
import operator
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fusegen.models.lift.constructor_numbers import CARRIERS
from fusegen.models.lift.known_sizes import is_of_sizes, of_sizes
from fusegen.models.lift.labels import label_of
from fusegen.models.lift.untraced import CONDITION, COUNTS, Lost

COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "bool": bool, "int": int, "float": float, "trunc": math.trunc, "floor": math.floor, "ceil": math.ceil,
}  # fmt: skip
Decided = dict[str, tuple[Any, int]]  # values and lines, by the texts of numbers


@dataclass(frozen=True)
class Read:
    """A read of a number: its text, the line, and whether it compares or converts to a truth."""

    text: str
    line: int
    is_test: bool


class _Watch(threading.local):
    """The file whose reads are noted, in a thread."""

    path = ""
    found: Decided = {}  # noqa: RUF012  # replaced by `watching`
    reads: dict[Read, None] = {}  # noqa: RUF012  # the same
    altered: Read | None = None


_watch = _Watch()


@contextlib.contextmanager
def watching(
    path: str,  # of the file
    names: dict[str, Any],  # the variables of its module
    altered: Read | None = None,  # the read whose result is another one when it is first done
) -> Iterator[Decided]:
    """Note the numbers that code of a file compares, converts, counts to or gives to functions of math."""
    before = {name: names[name] for name in names if _is_of_math(names[name])}
    own = "range" in names
    _watch.path, _watch.found, _watch.reads, _watch.altered = path, {}, {}, altered
    names.update({name: _Math() if value is math else _noted(value) for name, value in before.items()})
    if not own:
        names["range"] = _noted(range)
    try:
        yield _watch.found
    finally:
        names.update(before)
        if not own:
            del names["range"]
        _watch.path, _watch.found, _watch.reads, _watch.altered = "", {}, {}, None


def reads() -> tuple[Read, ...]:
    """Return the reads that were noted, each once; inside `watching`."""
    return tuple(_watch.reads)


def _is_of_math(value: Any) -> bool:
    return value is math or (callable(value) and getattr(value, "__module__", "") == "math")


class _Math:
    """The module math, whose functions note their arguments."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(math, name)
        return _noted(value) if callable(value) else value


def _noted(function: Callable[..., Any]) -> Callable[..., Any]:
    def note_arguments(*args: Any) -> Any:
        frame = sys._getframe(1)
        if any(map(is_of_sizes, args)) and function is not range:
            return of_sizes(function, args)
        given = [_value(each) + 1 if _note(each, frame) else each for each in args]
        return getattr(math, function.__name__, function)(*given)

    return note_arguments


def _note(value: Any, frame: Any, *, is_test: bool = False) -> bool:
    """Note a number that the watched file reads; tell whether the read gives another result."""
    label = label_of(value)
    if label is None or not _watch.path or frame.f_code.co_filename != _watch.path:
        return False
    if is_of_sizes(value):
        raise Lost(CONDITION if is_test else COUNTS)
    _watch.found.setdefault(label, (_value(value), frame.f_lineno))
    read = Read(label, frame.f_lineno, is_test)
    _watch.reads.setdefault(read)
    if read != _watch.altered:
        return False
    _watch.altered = None  # once, so that a loop ends
    return True


def require(value: Any) -> None:
    """Note a number of which a trace holds what it decides in a call of torch.

    Raises:
        Lost: it is the size of a parameter.
    """
    if is_of_sizes(value):
        raise Lost(COUNTS)
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != _watch.path:
        frame = frame.f_back
    line = 0 if frame is None else frame.f_lineno
    _watch.found.setdefault(str(label_of(value)), (_value(value), line))


def _value(number: Any) -> Any:
    """Return a number without its text, which its own methods would ask for again."""
    if not isinstance(number, tuple(CARRIERS.values())):
        return number
    exact: Any = int.__int__ if isinstance(number, int) else float.__float__
    return exact(number)


def _comparison(name: str) -> Callable[[Any, Any], Any]:
    compare_plain = getattr(operator, name)

    def compare(self: Any, other: Any) -> Any:
        found = compare_plain(_value(self), _value(other))
        return not found if _note(self, sys._getframe(1), is_test=True) else found

    return compare


def _conversion(convert_plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    is_test = convert_plain is bool

    def convert(self: Any) -> Any:
        found = convert_plain(_value(self))
        altered = _note(self, sys._getframe(1), is_test=is_test)
        return found if not altered else not found if is_test else found + 1

    return convert


def _round(self: Any, digits: int | None = None) -> Any:
    return round(_value(self), digits) + _note(self, sys._getframe(1))


def _hash(self: Any) -> int:
    return hash(_value(self))


for _kind in CARRIERS.values():
    for _name in COMPARISONS:
        setattr(_kind, f"__{_name}__", _comparison(_name))
    for _name, _convert in CONVERSIONS.items():
        setattr(_kind, f"__{_name}__", _conversion(_convert))
    setattr(_kind, "__round__", _round)  # noqa: B010  # of a class
    setattr(_kind, "__hash__", _hash)  # noqa: B010  # which __eq__ takes away
