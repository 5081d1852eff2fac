"""A partial model: its regions, and the text of its file."""

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from fusegen.core.write import Change, changes
from fusegen.errors import FusegenError, ModuleEdited, NoRegion, NotGenerated, Span
from fusegen.models.lift.constructor_decisions import decided_in_constructor, structure
from fusegen.models.lift.decisions import Decided, watching
from fusegen.models.lift.found import Found, regions_of, with_norms
from fusegen.models.lift.fx_graph import line_of, what
from fusegen.models.lift.labels import labelled, with_labels
from fusegen.models.lift.lifted import name_of
from fusegen.models.lift.load import Problem, line_span, refuse_variadic, telling
from fusegen.models.lift.model_graphs import as_written, refuse_hooks
from fusegen.models.lift.partial.attributes import label_numbers
from fusegen.models.lift.partial.call_text import required_value
from fusegen.models.lift.partial.file_text import PYTORCH, calls_of, file_text
from fusegen.models.lift.partial.held import constants, free, in_regions, kinds, required
from fusegen.models.lift.partial.held_arguments import required_arguments
from fusegen.models.lift.partial.module import HEAD
from fusegen.models.lift.regions.biases import split_biases
from fusegen.models.lift.regions.builds import VARYING, Named, alike, named
from fusegen.models.lift.rule import ALONE, Rule
from fusegen.models.lift.spec_text import is_edited, without_digest
from fusegen.models.reader.aten_calls import TRACING
from fusegen.models.reader.aten_table import ROWS
from fusegen.models.reader.row_calls import OF_ROWS
from fusegen.models.reader.window_calls import WINDOWS

TABLE = {**ROWS, **OF_ROWS, **WINDOWS}
EACH = "return a value for each"


@dataclass(frozen=True)
class Partial:
    """A partial model."""

    name: str  # of its file
    text: str  # of it
    problem: Problem  # the user's file
    found: Found  # its regions
    specs: Named  # of these
    tensors: tuple[Tensor, ...]  # the values of its graph and its state, on the device `meta`
    # the numbers of the constructor at whose other settings the model makes the same calls
    scalars: tuple[str, ...]

    def line(self, node: fx.Node) -> int:
        """Return the line of the user's file that made a node."""
        return line_of(self.problem, node)


def partial(
    problem: Problem,  # the file
    name: str | None,  # of the new file; by default that of the user's
    specs: Path,  # the folder of the specs
    least_passes: int = 2,  # of eager over memory, from which on a region has a kernel
    device: str = "cpu",  # the type of that on which the kernels run
) -> Partial:
    """Return the partial model of a file that was executed.

    Raises:
        NotAModel, NotLifted: the model cannot be traced or written, or no region is worth a kernel.
    """
    with TRACING:
        return _partial(problem, name, specs, Rule(least_passes, device=device, rows=TABLE))


def _partial(problem: Problem, name: str | None, specs: Path, rule: Rule) -> Partial:
    own = _written(problem, specs, rule)

    def is_same(other: Problem) -> bool:
        with suppress(FusegenError):
            return _written(other, specs, rule).key == own.key
        return False

    in_forward, in_constructor = own.decided
    decides = [*required_arguments(problem, is_same), *required(in_constructor)]
    text = file_text(problem, own.found, own.known, ([*required(in_forward), *own.lines], decides))
    tensors = (
        *(each for each in own.inputs.values() if isinstance(each, Tensor)),
        *own.found.model.parameters(),
        *own.found.model.buffers(),
    )
    chosen = name or name_of(problem)
    if chosen in own.known.names.values():
        chosen = f"{chosen}_model"
    scalars = free(problem, own.decided, numbers_of)
    return Partial(chosen, text, problem, own.found, own.known, tensors, scalars)


@dataclass(frozen=True)
class _Written:
    """The parts of a file."""

    inputs: Mapping[str, Any]  # of forward
    found: Found
    known: Named
    # numbers that decide what forward runs, and what the constructor makes
    decided: tuple[Decided, Decided]
    lines: list[str]  # of forward, behind those that require numbers

    @property
    def key(self) -> tuple[object, ...]:
        """Equal where files are the same, but for the lines of other arguments."""
        decided = [{text: value for text, (value, _) in each.items()} for each in self.decided]
        texts = {path: VARYING.sub("", text) for path, text in self.known.texts.items()}
        return self.lines, texts, decided


def _written(problem: Problem, specs: Path, rule: Rule) -> _Written:
    model, numbers = _made(problem)
    inputs = _inputs(problem)
    with watching(str(problem.path), problem.get_inputs.__globals__) as decided:
        found = _found(problem, model, inputs, rule)
    known = named(found.chosen, specs, f"lifted from {problem.source}", problem.get_inputs.__globals__)
    regions = in_regions(problem, numbers, [each.region for each in found.chosen])
    both = {**regions, **decided}, decided_in_constructor(problem, structure(problem))
    calls = calls_of(problem, found, known)
    held = constants(problem, inputs)
    lines = [line for name, value in held.items() for line in required_value(value, name)]
    return _Written(inputs, found, known, both, [*lines, *kinds(found), *calls])


def checked(path: Path, of: Partial) -> tuple[Change, ...]:
    """Return the changes that writing the file of a partial model makes.

    Raises:
        NotGenerated: the file is there and is of another origin.
        ModuleEdited: the file was edited since it was written.
    """
    begins = HEAD.partition("{source}")[0] + of.problem.source
    made = changes({path: of.text})
    before = [change.before for change in made if change.before is not None]
    if not all(without_digest(text).startswith(begins) for text in before):
        raise NotGenerated(Span(path.as_posix()))
    if any(map(is_edited, before)):
        raise ModuleEdited(Span(path.as_posix()))
    return made


def _made(problem: Problem) -> tuple[nn.Module, dict[str, Any]]:
    """Return the model on the device `meta`, with its numbers by their labels."""
    arguments = {name: with_labels(name, value, labelled) for name, value in problem.arguments().items()}
    with torch.device("meta"), telling(problem.path, "the constructor raises"):
        model = problem.model(**arguments)
    refuse_hooks(model, problem.attribute)
    return model, label_numbers(model)


def numbers_of(problem: Problem) -> dict[str, Any]:
    """Return the numbers of a problem's model, by their texts."""
    return _made(problem)[1]


def _inputs(problem: Problem) -> dict[str, Any]:
    """Return the results of get_inputs, without their memory, by the names of forward's arguments."""
    with torch.device("meta"):
        found = problem.call(problem.get_inputs, "get_inputs")
    signature = inspect.signature(problem.model.forward)
    refuse_variadic(problem, signature, "forward")
    arguments = [*signature.parameters.values()][1:]
    if len(found) > len(arguments) or any(each.default is each.empty for each in arguments[len(found) :]):
        problem.refuse(
            f"forward takes {len(arguments)} arguments, and get_inputs returns {len(found)}", EACH
        )
    return dict(zip((each.name for each in arguments), found, strict=False))


def _found(problem: Problem, model: nn.Module, inputs: Mapping[str, Any], rule: Rule) -> Found:
    """Return the regions of the model."""
    with torch.device("meta"):
        modes = as_written(model, str(problem.path), inputs)
    modes = with_norms(modes, rule, [True] * len(modes.graphs))
    for graph, of_mode in zip(modes.graphs, rule.in_each_mode(modes.graphs), strict=True):
        split_biases(graph, of_mode.partition(graph).regions, of_mode.adds_bias)
    found = regions_of(model, modes, rule, problem.source)
    if not found.chosen:
        raise _not_worth(problem, found)
    return replace(found, chosen=alike(found.chosen))


def _not_worth(problem: Problem, found: Found) -> NoRegion:
    """Return the refusal of a model without a region, at the first call that stays PyTorch's."""
    by_worth = sorted(found.left.items(), key=lambda one: one[1] != ALONE)
    node, why = next(iter(by_worth), (None, "it has no operation"))
    line = line_of(problem, node) if node else 0
    shown = f"{what(node)} stays: {why}" if node else why
    span = line_span(problem.path, line)
    return NoRegion(span, node=problem.attribute, why=shown, remedy=PYTORCH)
