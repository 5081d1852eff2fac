"""A problem file and the text of its candidate, executed as the benchmark executes them.

A problem file defines ``Model``, ``get_inputs`` and ``get_init_inputs``, a candidate ``ModelNew``. Both run
by `exec` in one dict that has neither ``__file__`` nor ``__name__``, the problem first.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from torch import nn

from fusegen.models.lift.tiny import by_divisors, by_place
from fusegen.models.lift.tiny import shrunk as shrunk

CLASSES = {  # of problems, by the layers that their Model has; the first that fits
    "convolution": re.compile(r"(Lazy)?Conv(Transpose)?[123]d"),
    "linear": re.compile(r"(Lazy|Bi)?[Ll]inear"),
}
POINTWISE = "pointwise"
REFERENCE = ("Model", "get_inputs", "get_init_inputs")
CANDIDATE = "ModelNew"


class NotAProblem(Exception):
    """A problem or a candidate that lacks a required definition."""


@dataclass(frozen=True)
class Problem:
    """A problem file."""

    name: str  # of the file, without its ending
    code: CodeType  # of its text


@dataclass(frozen=True)
class Pair:
    """A problem and its candidate after both texts ran in one dict."""

    # model, candidate: the two classes
    model: type[nn.Module]
    candidate: type[nn.Module]
    # get_inputs, get_init_inputs: of the problem
    get_inputs: Callable[[], list[Any]]
    get_init_inputs: Callable[[], list[Any]]


def key(name: str) -> str:
    """Return a name as it is compared: without a number in front, letters and digits only."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"^\d+_", "", name.lower()))


def read(path: Path, shapes: str) -> Problem:
    """Return the problem in a file.

    Args:
        path: of the file.
        shapes: ``declared`` or ``tiny``.

    Raises:
        NotAProblem: the file is not Python.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise NotAProblem(f"{path.name} is not Python: {error}") from None
    if shapes == "tiny":
        # groups divide channels, in small sizes too
        tree = shrunk(tree, by_divisors if "groups" in ast.unparse(tree) else by_place)
    return Problem(path.stem, compile(tree, path.name, "exec"))


def executed(problem: Problem, candidate: str) -> Pair:
    """Return both texts after they ran.

    Raises:
        NotAProblem: a text fails or lacks a definition.
    """
    own: dict[str, Any] = {}
    _run(problem.code, own, problem.name)
    reference = [_defined(own, name, problem.name) for name in REFERENCE]
    before = {name: own[name] for name in sorted(_globals_of(*reference)) if name in own}
    _run(candidate, own, "the candidate")
    made = _defined(own, CANDIDATE, "the candidate")
    for name, value in before.items():
        if own[name] is not value and (isinstance(value, type) or own[name] != value):
            raise NotAProblem(f"the candidate changes {name}, which the problem reads when it is called")
    return Pair(reference[0], made, reference[1], reference[2])


def class_of(model: nn.Module) -> str:
    """Return the class of a problem: ``convolution``, ``linear`` or ``pointwise``."""
    layers = [type(module).__name__ for module in model.modules()]
    fits = (name for name, layer in CLASSES.items() if any(map(layer.fullmatch, layers)))
    return next(fits, POINTWISE)


def _run(text: CodeType | str, own: dict[str, Any], what: str) -> None:
    try:
        exec(text, own)
    except Exception as error:
        raise NotAProblem(f"{what} fails when it is executed: {sentence(error)}") from None


def _defined(own: dict[str, Any], name: str, what: str) -> Any:
    if name not in own:
        raise NotAProblem(f"{what} defines no {name}")
    return own[name]


def _globals_of(*objects: Any) -> set[str]:
    """Return the global names that functions and methods of classes read."""
    found: set[str] = set()
    left = [one.__code__ for one in _functions(objects)]
    while left:
        code = left.pop()
        found |= set(code.co_names)
        left += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found


def _functions(objects: Iterable[Any]) -> Iterator[Any]:
    for one in objects:
        members = vars(one).values() if isinstance(one, type) else (one,)
        yield from (member for member in members if isinstance(member, FunctionType))


def sentence(error: BaseException) -> str:
    """Return an exception in one line."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
