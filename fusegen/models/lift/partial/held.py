"""Numbers that decide what code runs: lines that require their values, and the numbers left free."""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, fx

from fusegen.errors import FusegenError, NotAModel
from fusegen.models.lift.comparison import free_numbers, other_settings
from fusegen.models.lift.constructor_decisions import names_in
from fusegen.models.lift.decisions import Decided
from fusegen.models.lift.found import Found
from fusegen.models.lift.fx_graph import line_of
from fusegen.models.lift.labels import plain
from fusegen.models.lift.load import Problem
from fusegen.models.lift.noted_reads import DIM_READ, DTYPE_READ, VALUE
from fusegen.models.lift.partial.attributes import attribute, fixed, ranks, truths
from fusegen.models.lift.partial.call_text import required_value
from fusegen.models.lift.regions.pointwise import operation_of
from fusegen.models.lift.regions.region import Region
from fusegen.models.reader.aten_calls import calls_of, value_of
from fusegen.models.reader.row_calls import POOLS

FROM_THE_END = frozenset(("layer_norm", "rms_norm", *POOLS))  # operators that count dimensions so
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


def kinds(found: Found) -> Iterator[str]:
    """Yield the lines that refuse other dtypes and ranks, where forward or a region depends on them."""
    graph, model = found.modes.graphs[0], found.model
    inputs = {str(node.target): node for node in graph.find_nodes(op="placeholder")}
    read: Mapping[str, Any] = next(iter(inputs.values())).meta if inputs else {}
    dtypes, dims = (frozenset(read.get(key, ())) for key in (DTYPE_READ, DIM_READ))
    if any(counts_dims(each.region) for each in found.chosen):
        dims |= {VALUE}
    for name, node in inputs.items():
        if {name, VALUE} & dtypes:
            yield from required_value(value_of(node).dtype, f"{name}.dtype")
        if {name, VALUE} & dims:
            yield from required_value(value_of(node).dim(), f"{name}.dim()")
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name in state:
        if name in dtypes:
            yield from required_value(state[name].dtype, f"{attribute(model, name)}.dtype")
        if name in dims:
            yield from required_value(state[name].dim(), f"{attribute(model, name)}.dim()")
    if VALUE in dtypes and state:
        yield from _dtypes_of_state({each.dtype for each in state.values()})


def _dtypes_of_state(dtypes: Collection[torch.dtype]) -> Iterator[str]:
    """Yield the lines that refuse parameters and buffers of other dtypes, which decide those of values."""
    shown = ", ".join(sorted(map(str, dtypes)))
    yield f"if {{each.dtype for each in (*self.parameters(), *self.buffers())}} != {{{shown}}}:"
    yield f'    raise ValueError("forward was traced with parameters and buffers of {shown}")'


def counts_dims(region: Region) -> bool:
    """Return True if what a file has of a region is right for the rank of the example alone.

    A spec counts the last dimensions from the end and others from the front, whatever the model does. The
    index that gives a result dimensions of size 1 counts them from the front.
    """
    rows = region.rows
    if rows is None or rows.layer or rows.groups:
        return False
    is_last = rows.dims[-1] == region.whole.dim() - 1
    reductions = (part.node for part in region.parts if part.reduces and part.rows)
    return (is_last and region.restored != ()) or any(
        _counts_otherwise(node, is_last=is_last) for node in reductions
    )


def _counts_otherwise(node: fx.Node, *, is_last: bool) -> bool:
    """Return True if an operator counts the dimensions that it reduces from the other side than a spec."""
    if operation_of(node) in FROM_THE_END:
        return False
    calls = calls_of(node)
    given = calls.made[0].arguments.get("dim") if calls is not None and calls.made else None
    dims = [given] if isinstance(given, int) else given
    return not isinstance(dims, Sequence) or any((plain(each) < 0) != is_last for each in dims)


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
