"""Lines that require the words, truths, lengths and functions among the arguments of a constructor.

A trace holds what forward and the constructor decide by them. Numbers have labels, and are left out.
"""

import enum
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.errors import NotAModel
from fusegen.models.lift.argument_reads import reads
from fusegen.models.lift.constructor_decisions import kept
from fusegen.models.lift.labels import is_record
from fusegen.models.lift.load import Problem
from fusegen.models.lift.partial.attributes import attribute
from fusegen.models.lift.partial.call_text import function_name, refusing, required_value, value_text
from fusegen.models.lift.smaller import tried
from fusegen.models.reader.formula import Unfit

MOST_TRIED = 3  # truths, all settings of which are tried; others are required
BY_REPR = (enum.Enum, bytes, complex, range, torch.Size)
WORDS = (bool, str, type(None))
ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in the repr of a value that has no text
NAMELESS = "the file cannot name the argument {} of the constructor, a {}"
REMEDY = "define it at the top level of a file, or leave the model to PyTorch"

Same = Callable[[Problem], bool]  # tells if the file of a problem with other arguments is the same
Names = Mapping[str, Any]  # of the file, with their values


def required_arguments(problem: Problem, is_same: Same) -> Iterator[str]:
    """Yield the lines of a constructor that refuse other arguments than those which a trace holds.

    Raises:
        NotAModel: an argument has no text.
    """
    own = problem.arguments()
    read = {name: value for name, value in own.items() if reads(problem, name) != 0}
    free = _free_truths(problem, [name for name in read if isinstance(read[name], bool)], is_same)
    names = {"torch": torch, **problem.get_inputs.__globals__}
    for name, value in read.items():
        if type(value) in (int, float):
            other = problem.given({**own, name: None})
            if _runs(other) and not is_same(other):
                yield from refusing(f"{name} is None", f"{name}={value!r}")
        elif name not in free:
            try:
                yield from _lines(name, value, names)
            except (Unfit, RecursionError):
                problem.refuse(NAMELESS.format(name, type(value).__name__), REMEDY)


def _runs(problem: Problem) -> bool:
    """Return True if a model takes its arguments."""
    with suppress(NotAModel):
        tried(problem)
        return True
    return False


def _free_truths(problem: Problem, names: list[str], is_same: Same) -> list[str]:
    """Return the truths at all whose settings the file is the same, those of several together, too."""
    own = problem.arguments()
    free: list[str] = []
    for name in names:
        settings = itertools.product((False, True), repeat=len(free))
        others = ({**own, **dict(zip(free, each, strict=True)), name: not own[name]} for each in settings)
        if len(free) < MOST_TRIED and all(is_same(problem.given(other)) for other in others):
            free.append(name)
    return free


def _lines(text: str, value: Any, names: Names) -> Iterator[str]:
    """Yield the lines that refuse another value than one of no number.

    Raises:
        Unfit: it has no text.
    """
    if type(value) in (int, float) or isinstance(value, Tensor):
        return
    lines = CONTAINERS.get(type(value)) or next(
        (LINES[each] for each in LINES if isinstance(value, each)), None
    )
    usual = _of_function if callable(value) else _of_record if is_record(value) else _of_value
    yield from (lines or usual)(text, value, names)


def _of_sequence(text: str, value: Any, names: Names) -> Iterator[str]:
    kind = type(value).__name__
    differs = f"{text}.__class__.__name__ != {kind!r} or len({text}) != {len(value)}"
    yield from refusing(differs, f"{text} as a {kind} of length {len(value)}")
    for place, each in enumerate(value):
        yield from _lines(f"{text}[{place}]", each, names)


def _of_set(text: str, value: Any, _: Names) -> Iterator[str]:
    items = ", ".join(sorted(value_text(each, {}) for each in value))  # whose order is another in each run
    yield from refusing(f"{text} != {type(value).__name__}([{items}])", f"{text}={{{items}}}")


def _of_dict(text: str, value: Any, names: Names) -> Iterator[str]:
    keys = value_text([*value], {})
    differs = f"not isinstance({text}, dict) or [*{text}] != {keys}"
    yield from refusing(differs, f"{text} as a dict with the keys {keys}")
    for key, each in value.items():
        yield from _lines(f"{text}[{key!r}]", each, names)


def _of_module(text: str, value: nn.Module, names: Names) -> Iterator[str]:
    """Yield the lines that require the layers of a module, and the words that those of files keep."""
    yield from _of_repr(text, value, names)
    for path, module in value.named_modules():
        if not type(module).__module__.startswith("torch."):
            for name, word in kept(module, *WORDS).items():
                where = attribute(value, f"{path}.{name}".strip(".")).removeprefix("self")
                yield from required_value(word, text + where)


def _of_repr(text: str, value: Any, _: Names) -> Iterator[str]:
    shown = repr(value)
    if ADDRESS.search(shown):
        raise Unfit(f"{text} has no text")
    yield from refusing(f"repr({text}) != {shown!r}", f"{text}={' '.join(shown.split())}")


def _of_value(text: str, value: Any, names: Names) -> Iterator[str]:
    """Yield the lines that require a value, which is of no type of a library such as numpy, or its repr."""
    try:
        if type(value).__module__ not in ("builtins", "collections", "torch"):
            raise Unfit(text)
        yield from required_value(value, text)
    except Unfit:
        yield from _of_repr(text, value, names)


def _of_function(text: str, value: Any, names: Names) -> Iterator[str]:
    """Yield the lines that require a function or a class, by its place in the file or in a module.

    A function of the file is another object in the written one, so that its name is compared.
    """
    name = getattr(value, "__qualname__", "<")
    if getattr(value, "__module__", None) != names["__name__"]:
        shown = function_name(value, names)
        yield from refusing(f"{text} is not {shown}", f"{text}={shown}")
    elif "<" in name:  # of a lambda, or in a function
        raise Unfit(f"{text} has no name")
    else:
        yield from refusing(f'getattr({text}, "__qualname__", None) != {name!r}', f"{text}={name}")


def _of_partial(text: str, value: Any, names: Names) -> Iterator[str]:
    """Yield the lines that require a function with some arguments, whose numbers have no labels."""
    yield from refusing(f'{text}.__class__.__name__ != "partial"', f"{text} as a partial")
    yield from _lines(f"{text}.func", value.func, names)
    yield from required_value(value.args, f"{text}.args")
    yield from required_value(value.keywords, f"{text}.keywords")


def _of_record(text: str, value: Any, names: Names) -> Iterator[str]:
    kind = type(value).__name__
    yield from refusing(f"{text}.__class__.__name__ != {kind!r}", f"{text} as a {kind}")
    for name, each in vars(value).items():
        yield from _lines(f"{text}.{name}", each, names)


Lines = Callable[[str, Any, Names], Iterator[str]]
CONTAINERS: dict[type, Lines] = {
    tuple: _of_sequence,
    list: _of_sequence,
    dict: _of_dict,
    set: _of_set,
    frozenset: _of_set,
}
LINES: dict[type, Lines] = {  # by the first type that a value is of
    functools.partial: _of_partial,
    nn.Module: _of_module,
    **dict.fromkeys(BY_REPR, _of_repr),
}
