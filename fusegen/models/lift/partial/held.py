"""Numbers that decide what code runs: lines that require their values, and the numbers left free."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from torch import Tensor, fx

from fusegen.errors import FusegenError, NotAModel
from fusegen.models.lift.comparison import free_numbers, other_settings
from fusegen.models.lift.constructor_decisions import names_in
from fusegen.models.lift.decisions import Decided
from fusegen.models.lift.fx_graph import line_of
from fusegen.models.lift.load import Problem
from fusegen.models.lift.noted_calls import DIM_READ, DTYPE_READ
from fusegen.models.lift.partial.attributes import fixed, ranks, truths
from fusegen.models.lift.partial.call_text import required_value
from fusegen.models.lift.regions.region import Region
from fusegen.models.reader.aten_calls import value_of

Numbers = Mapping[str, Any]  # the numbers of a model's attributes, by their texts


def required(decided: Decided) -> Iterator[str]:
    """Yield the lines of a method that refuse other values than those of the trace."""
    for text, (value, _) in decided.items():
        yield f"if {text} != {value!r}:"
        yield f'    raise ValueError("forward was traced with {text}={value!r}")'


def constants(problem: Problem, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of forward that the trace holds as they are: no tensors and no numbers."""
    arguments = [*inspect.signature(problem.model.forward).parameters.values()][1:]
    given = {name: value for name, value in inputs.items() if not isinstance(value, Tensor)}
    left = {each.name: each.default for each in arguments if each.name not in inputs}
    return {**{name: value for name, value in given.items() if type(value) not in (int, float)}, **left}


def kinds_of_inputs(graph: fx.Graph) -> Iterator[str]:
    """Yield the lines that refuse inputs of other dtypes or dimensions, where forward reads these."""
    for node in graph.find_nodes(op="placeholder"):
        if DTYPE_READ in node.meta:
            yield from required_value(value_of(node).dtype, f"{node.target}.dtype")
        if DIM_READ in node.meta:
            yield from required_value(value_of(node).dim(), f"{node.target}.dim()")


def in_regions(problem: Problem, numbers: Numbers, regions: Iterable[Region]) -> Decided:
    """Return the numbers and truths of the constructor that the specs of regions have as they are."""
    kinds = {type(each) for each in problem.arguments().values()}
    made: Decided = {}
    for region in regions:
        values = {**fixed(region), **ranks(region, numbers, kinds)}
        values |= truths(region) if bool in kinds else {}
        made |= {text: (value, line_of(problem, region.result)) for text, value in values.items()}
    return made


def free(
    problem: Problem,  # the file
    decided: tuple[Decided, Decided],  # the numbers that forward and the constructor of the module require
    numbers_of: Callable[[Problem], Numbers],  # gives the numbers of a problem's model
) -> tuple[str, ...]:
    """Return the numbers of the constructor at whose other settings the module runs, as the model does."""
    with suppress(NotAModel):  # it needs values to run
        in_forward, in_constructor = decided
        own, held = _held(numbers_of(problem), in_forward), names_in(in_constructor)
        return tuple(
            name
            for name in free_numbers(problem)
            if name not in held
            and all(_keeps(own, other, numbers_of) for other in other_settings(problem, name))
        )
    return ()


def _held(numbers: Numbers, decided: Decided) -> Numbers:
    """Return the numbers that stand in the texts of those which are required."""
    return {text: value for text, value in numbers.items() if any(text in whole for whole in decided)}


def _keeps(own: Numbers, other: Problem, numbers_of: Callable[[Problem], Numbers]) -> bool:
    """Return True if a setting leaves the numbers that are required as they are."""
    with suppress(FusegenError):
        numbers = numbers_of(other)
        return all(numbers.get(text) == value for text, value in own.items())
    return False
