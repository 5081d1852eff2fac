"""A lifted model: the text of its spec, and the facts that the report prints."""

import ast
import keyword
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fusegen.errors import FusegenError, NotLifted, SpecErrors
from fusegen.language.parse import parse_spec
from fusegen.models.lift.argument_reads import reads
from fusegen.models.lift.constructed_state import Constructed, constructed, parts
from fusegen.models.lift.constructor_decisions import decided_in_constructor
from fusegen.models.lift.decisions import Decided, watching
from fusegen.models.lift.fx_graph import Traced, forward_line, live
from fusegen.models.lift.load import Problem, class_line, executed, line_span, read
from fusegen.models.lift.model_graphs import as_constructed
from fusegen.models.lift.model_inputs import Given, check_arguments, given
from fusegen.models.lift.regions.aliases import writes
from fusegen.models.lift.smaller import tried
from fusegen.models.lift.spec_text import read_names, spec_text, specs, without_digest
from fusegen.models.lift.steps import steps
from fusegen.models.lift.trace import Reader
from fusegen.models.reader.aten_calls import TRACING

DECIDES = "{where} reads it otherwise than by arithmetic, so that the spec would hold for this value alone"
INIT = re.compile(r"^init: .*$", re.MULTILINE)  # the line of a spec that has the arguments
PARTIAL = "lift with --partial, whose module refuses other values"


@dataclass(frozen=True)
class Lifted:
    """A lifted model."""

    name: str  # of the spec
    text: str  # of the spec
    problem: Problem  # the model's file
    of: Constructed  # its constructor
    given: Given  # its inputs
    traced: Traced  # its forward
    unread: tuple[str, ...]  # arguments of the constructor that neither layers nor formulas read
    scalars: tuple[str, ...]  # those that formulas alone read

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The inputs and the state, on the device `meta`."""
        inputs = (each for each in self.given.values.values() if isinstance(each, Tensor))
        return (*inputs, *self.of.model.parameters(), *self.of.model.buffers())


def lifted(
    target: str,  # the file and the class
    name: str | None = None,  # of the spec; by default that of the file
) -> Lifted:
    """Return the model that ``FILE.py:Model`` means; the file is executed.

    Raises:
        NotAModel, NotLifted: the model cannot be lifted.
    """
    path, attribute, tree = read(target)
    return lifted_problem(executed(path, attribute, tree), name)


def lifted_problem(problem: Problem, name: str | None = None) -> Lifted:
    """Return the model of a file that was executed.

    Raises:
        NotAModel, NotLifted: the model cannot be lifted.
    """
    found = _lifted(problem, name)
    for argument, value in found.of.arguments.items():
        is_number = type(value) in (int, float)
        if (_takes_none if is_number else _decides)(found, argument):
            _refuse_decided(problem, "the model", {argument: (value, class_line(problem))})
    return found


def _decides(found: Lifted, argument: str) -> bool:
    """Return True if an argument that is no number may be read elsewhere than by the layers of a spec."""
    parts = (*found.of.layers.values(), *found.of.state.values())
    names = (node for part in parts for node in ast.walk(ast.parse(part)) if isinstance(node, ast.Name))
    return reads(found.problem, argument) not in (0, sum(node.id == argument for node in names))


def _takes_none(found: Lifted, argument: str) -> bool:
    """Return True if a model runs with None in the place of a number, and is another one.

    A layer that reads the number takes None as the model's does.
    """
    if argument not in (*found.unread, *found.scalars):
        return False
    with suppress(FusegenError):
        other = found.problem.given({**found.of.arguments, argument: None})
        tried(other)
        with suppress(FusegenError):
            texts = (
                INIT.sub("", without_digest(each.text)) for each in (found, _lifted(other, found.name))
            )
            return len({*texts}) > 1
        return True
    return False


def _lifted(problem: Problem, name: str | None) -> Lifted:
    """Return the model of a file, which may be right for these arguments of its constructor alone."""
    of = constructed(problem)
    _refuse_decided(problem, "the constructor", decided_in_constructor(problem, partial(parts, problem)))
    chosen = name or name_of(problem)
    inputs = given(problem, of, chosen)
    with watching(str(problem.path), problem.get_inputs.__globals__) as decided:
        graph = traced(problem, of, inputs)
    _refuse_decided(problem, "forward", decided)
    for attribute in of.layers:
        if attribute not in graph.layers:
            problem.refuse(f"forward never calls the layer {attribute}", "remove it")
    if list(graph.layers) != [attribute for attribute in of.order if attribute in of.layers]:
        problem.refuse(
            "forward calls the layers in another order than the constructor makes them", "reorder them"
        )
    check_arguments(problem, of)
    taken = {*inputs.values, *of.order, *of.arguments, *inputs.symbols.values(), *inputs.names, chosen}
    body = steps(graph, inputs.names[inputs.first], taken)
    text = spec_text(chosen, problem, of, inputs, body)
    try:
        parse_spec(text, f"specs/{chosen}.yaml")
    except SpecErrors as errors:
        raise untold(problem, errors.errors[0]) from None
    made = set(re.findall(r"[A-Za-z_]\w*", " ".join((*of.layers.values(), *of.state.values()))))
    read_by = {name for name, symbol in inputs.symbols.items() if symbol in read_names(body)}
    unread = tuple(name for name in of.arguments if name not in made | read_by)
    scalars = tuple(name for name in of.arguments if name in read_by - made)
    return Lifted(chosen, text, problem, of, inputs, graph, unread, scalars)


def _refuse_decided(problem: Problem, where: str, decided: Decided) -> None:
    """Refuse a number that decides what the constructor makes, or what forward runs."""
    for text, (value, line) in decided.items():
        span, why = line_span(problem.path, line), DECIDES.format(where=where)
        raise NotLifted(span, node=f"{text} = {value!r}", why=why, remedy=PARTIAL)


def untold(problem: Problem, error: FusegenError) -> NotLifted:
    """Return a mistake in the spec that was written, at the model's forward."""
    span = line_span(problem.path, forward_line(problem))
    return NotLifted(
        span,
        node=f"the model {problem.attribute}",
        why=error.message,
        remedy="change the model, or write the spec by hand",
    )


def name_of(problem: Problem) -> str:
    """Return the name of a spec by that of the file, without a number in front: ``linear_scale_silu``."""
    found = re.sub(r"[^a-z0-9]+", "_", problem.path.stem.lower()).strip("_")
    found = re.sub(r"^[\d_]+", "", found) or "model"
    return f"{found}_model" if found in specs() or keyword.iskeyword(found) else found


def traced(problem: Problem, of: Constructed, given: Given) -> Traced:
    """Return the traced forward of a model.

    Raises:
        NotLifted: the language cannot hold it.
        NotAModel: forward raises.
    """
    with TRACING:
        return _traced(problem, of, given)


def _traced(problem: Problem, of: Constructed, given: Given) -> Traced:
    values = {name: given.values[own] for name, own in given.names.items()}
    with torch.device("meta"):
        graph = as_constructed(of.model, str(problem.path), values)
    reader, needed = Reader(problem, of, given), live(graph)
    for node in graph.nodes:
        if node in needed or writes(node) or node.op in ("placeholder", "call_module"):
            reader.take(node)
    return reader.found()
