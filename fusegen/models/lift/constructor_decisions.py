"""Arguments that decide what a constructor makes: a trace of forward is right for their values alone.

The constructor is run again for each number that it compares or converts, with another result in its place,
and for other whole numbers. What then makes another model is decided.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from fusegen.models.lift.constructor_numbers import named_number
from fusegen.models.lift.decisions import Decided, Read, reads, watching
from fusegen.models.lift.labels import label_of
from fusegen.models.lift.load import Problem, class_line

Made = Callable[[Mapping[str, Any]], Any]  # what a constructor makes of arguments, as a value


def decided_in_constructor(
    problem: Problem,  # the file
    made: Made,  # calls the constructor, and gives what a trace rests on
) -> Decided:
    """Return the arguments of a constructor, and arithmetic on them, that decide what it makes."""
    arguments, names = problem.arguments(), problem.get_inputs.__globals__
    path = str(problem.path)

    def run(altered: Read | None = None) -> tuple[Any, Decided, tuple[Read, ...]]:
        named = {name: named_number(name, value) for name, value in arguments.items()}
        with watching(path, names, altered) as decided:
            return made(named), decided, reads()

    usual, found, every = run()

    def changes(read: Read) -> bool:
        try:
            return bool(run(read)[0] != usual)
        except Exception as error:  # a test may also refuse the number
            return not (read.is_test and _refuses(error.__traceback__, path))

    decided = {read.text: found[read.text] for read in every if changes(read)}
    known = names_in(decided)
    layers = _layers(problem, arguments)
    for name, value in arguments.items():
        others = ({**arguments, name: other} for other in _others(value))
        if name not in known and any(_layers(problem, other) not in (None, layers) for other in others):
            decided[name] = (value, class_line(problem))
    return decided


def names_in(decided: Decided) -> frozenset[str]:
    """Return the names of the arguments in the texts of numbers."""
    return frozenset(re.findall(r"[A-Za-z_]\w*", " ".join(decided)))


def _refuses(trace: TracebackType | None, path: str) -> bool:
    """Return True if a statement of a file raised an exception itself."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_code.co_filename != path:
        return False
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    refusals = (node for node in ast.walk(tree) if isinstance(node, ast.Raise | ast.Assert))
    return any(node.lineno <= trace.tb_lineno <= (node.end_lineno or 0) for node in refusals)


def _others(value: Any) -> Iterator[Any]:
    """Yield other values of an argument that may decide a branch, a count or an item."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield from (value + 1, value - 1)


def _layers(problem: Problem, arguments: Mapping[str, Any]) -> Any:
    """Return the modules of a model by name and type; None where the constructor refuses arguments."""
    with suppress(Exception), torch.device("meta"):
        model = problem.model(**arguments)
        return [(name, type(module)) for name, module in _modules(model)]
    return None


def _modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules of a model by name; one that has several names as often."""
    yield from model.named_modules(remove_duplicate=False)


def structure(problem: Problem) -> Made:
    """Return a function that gives a model's modules by name and type, and the truths and words kept."""

    def made(arguments: Mapping[str, Any]) -> Any:
        with torch.device("meta"):
            model = problem.model(**arguments)
        return [(name, type(module), _words(module)) for name, module in _modules(model)]

    return made


def _words(module: nn.Module) -> dict[str, Any]:
    """Return the truths and words that a module of the file keeps; numbers are read where forward runs."""
    return {} if type(module).__module__.startswith("torch.") else kept(module, bool, str, type(None))


def kept(module: nn.Module, *kinds: type) -> dict[str, Any]:
    """Return the attributes of some types that a module keeps, those that know their text as that."""
    own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return {name: label_of(own[name]) or own[name] for name in own if isinstance(own[name], kinds)}
