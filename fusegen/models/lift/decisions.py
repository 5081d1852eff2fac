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

from torch import SymInt, nn

from fusegen.models.lift.constructor_numbers import CARRIERS
from fusegen.models.lift.known_sizes import is_of_sizes, of_sizes
from fusegen.models.lift.labels import CARRIERS as SEQUENCES
from fusegen.models.lift.labels import label_of
from fusegen.models.lift.refused_calls import replaced
from fusegen.models.lift.untraced import CONDITION, COUNTS, Lost

COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "bool": bool, "int": int, "float": float, "trunc": math.trunc, "floor": math.floor, "ceil": math.ceil,
}  # fmt: skip
BITS = ("and", "or", "xor", "lshift", "rshift", "divmod")
OTHERS = (  # methods of numbers whose results have no text
    *(f"__{reflected}{name}__" for name in BITS for reflected in ("", "r")),
    *"__invert__ __format__ __str__ __repr__ bit_length bit_count to_bytes conjugate".split(),
    *"as_integer_ratio is_integer hex".split(),
)
PARTS = "real imag numerator denominator".split()  # attributes of numbers
LISTS = (nn.Sequential, nn.ModuleList, nn.ParameterList)  # whose items have places
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
        with contextlib.ExitStack() as stack:
            for kind in LISTS:
                stack.enter_context(replaced(kind, "__getitem__", _item(kind.__getitem__)))
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
        if function is range and any(isinstance(each, SymInt) for each in args):
            raise Lost(COUNTS)
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


def _repeating(usual: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def multiply(self: Any, other: Any) -> Any:
        if isinstance(other, list | tuple | str | bytes) and isinstance(self, int):
            altered = _note(self, sys._getframe(1))
            return other * (_value(self) + altered)
        return usual(self, other)

    return multiply


def _other(name: str) -> Callable[..., Any]:
    """Return a method or an operator whose result has no text, as that of a conversion."""

    def read(self: Any, *given: Any) -> Any:
        altered = _note(self, sys._getframe(1))
        return getattr(_value(self) + altered, name)(*map(_value, given))

    return read


def _other_part(name: str) -> Callable[[Any], Any]:
    def read(self: Any) -> Any:
        return getattr(_value(self) + _note(self, sys._getframe(1)), name)

    return read


def _round(self: Any, digits: int | None = None) -> Any:
    return round(_value(self), digits) + _note(self, sys._getframe(1))


def _hash(self: Any) -> int:
    return hash(_value(self))


def _item(usual: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the method of sequences that takes an item, whose place an attribute may be."""

    def take(self: Any, place: Any) -> Any:
        frame = sys._getframe(1)
        for each in (place.start, place.stop, place.step) if isinstance(place, slice) else (place,):
            _note(each, frame)
        return usual(self, place)

    return take


for _kind in (SEQUENCES[tuple], SEQUENCES[list]):
    setattr(_kind, "__getitem__", _item(getattr(_kind, "__getitem__")))  # noqa: B009, B010  # of a class
for _kind in CARRIERS.values():
    for _name in OTHERS:
        if hasattr(_kind, _name):
            setattr(_kind, _name, _other(_name))
    for _name in PARTS:
        if hasattr(_kind, _name):
            setattr(_kind, _name, property(_other_part(_name)))
    for _name in ("__mul__", "__rmul__"):
        setattr(_kind, _name, _repeating(getattr(_kind, _name)))
    for _name in COMPARISONS:
        setattr(_kind, f"__{_name}__", _comparison(_name))
    for _name, _convert in CONVERSIONS.items():
        setattr(_kind, f"__{_name}__", _conversion(_convert))
    setattr(_kind, "__round__", _round)  # noqa: B010  # of a class
    setattr(_kind, "__hash__", _hash)  # noqa: B010  # which __eq__ takes away
