"""The inputs of a model: their names in the spec, their shapes, and what get_inputs fills them with."""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fusegen.errors import FusegenError, Span
from fusegen.language.parse.names import check_argument
from fusegen.models.lift.constructed_state import Constructed
from fusegen.models.lift.labels import plain
from fusegen.models.lift.load import Problem, refuse_variadic
from fusegen.models.lift.record import recording, storage_of
from fusegen.models.lift.symbols import ARGUMENT, INPUT, symbols

FILLS = ("rand", "randn")


@dataclass(frozen=True)
class Given:
    """The inputs of a model."""

    names: dict[str, str]  # of forward's arguments in the spec, by those of the model
    first: str  # the model's name of the first tensor
    values: dict[str, Any]  # by the names in the spec, tensors on the device `meta`, and numbers
    # of tensors, by the names in the spec; empty where get_inputs fills them otherwise
    fills: dict[str, str]
    # the names by which formulas read the constructor's arguments, by those of the model
    symbols: dict[str, str]


def given(problem: Problem, of: Constructed, spec: str) -> Given:
    """Return the inputs of a model, without the memory that they take.

    Raises:
        NotAModel: they are no tensors of floats and numbers, or not as many as forward takes.
    """
    signature = inspect.signature(of.model.forward)
    refuse_variadic(problem, signature, "forward")
    with recording() as record, torch.device("meta"):
        found = problem.call(problem.get_inputs, "get_inputs")
    arguments = list(signature.parameters)
    if len(found) != len(arguments):
        problem.refuse(
            f"forward takes {len(arguments)} arguments, and get_inputs returns {len(found)}",
            "return a value for each",
        )
    taken = {*of.order, spec}
    names = symbols(arguments, taken, "input", INPUT)
    of_arguments = symbols(of.arguments, {*taken, *names.values()}, "value", ARGUMENT)
    values = {
        names[name]: _checked(problem, name, value) for name, value in zip(arguments, found, strict=True)
    }
    pairs = zip(arguments, found, strict=True)
    tensors = [name for name, value in pairs if isinstance(value, Tensor) and value.is_floating_point()]
    if not tensors:
        problem.refuse("get_inputs returns no tensor of floats", "return one at least")
    made = {
        name: record.made.get(storage_of(value))
        for name, value in values.items()
        if isinstance(value, Tensor)
    }
    calls = {name: one.call.partition("(")[0] if one else "" for name, one in made.items()}
    multiples = {name for name, one in made.items() if one and " * " in one.call}
    fills = {name: call if call in FILLS and name not in multiples else "" for name, call in calls.items()}
    return Given(names, tensors[0], values, fills, of_arguments)


def _checked(problem: Problem, name: str, value: Any) -> Any:
    """Return an input that a spec can have."""
    if isinstance(value, bool) or not isinstance(value, Tensor | int | float):
        problem.refuse(f"the input {name} is a {type(value).__name__}, no tensor or number")
    if isinstance(value, Tensor) and not (value.is_floating_point() or value.dtype is torch.bool):
        kind = str(value.dtype).removeprefix("torch.")
        problem.refuse(
            f"the input {name} is of {kind}, and a spec has floats and masks", "convert it before"
        )
    return value if isinstance(value, Tensor) else plain(value)


def check_arguments(problem: Problem, of: Constructed) -> None:
    """Refuse names of the constructor's arguments that a spec cannot have.

    Raises:
        NotAModel: there is one.
    """
    for name in of.arguments:
        try:
            check_argument(name, Span(str(problem.path)))
        except FusegenError as error:
            problem.refuse(
                f"the argument {name!r} of the constructor cannot be kept: {error.message}", "rename it"
            )
