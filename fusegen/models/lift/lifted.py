"""A lifted model: the text of its spec, and the facts that the report prints."""

import keyword
import re
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from fusegen.errors import FusegenError, NotLifted, SpecErrors
from fusegen.language.parse import parse_spec
from fusegen.models.lift.constructed_state import Constructed, constructed, parts
from fusegen.models.lift.constructor_decisions import decided_in_constructor
from fusegen.models.lift.decisions import Decided, watching
from fusegen.models.lift.fx_graph import Traced, forward_line
from fusegen.models.lift.load import Problem, executed, line_span, read
from fusegen.models.lift.model_inputs import Given, check_arguments, given
from fusegen.models.lift.spec_text import read_names, spec_text, specs
from fusegen.models.lift.steps import steps
from fusegen.models.lift.traced_model import traced

DECIDES = "{where} reads it otherwise than by arithmetic, so that the spec would hold for this value alone"
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
