"""A partial model: its regions, and the text of its file."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from fusegen.core.write import Change, changes
from fusegen.errors import ModuleEdited, NoRegion, NotAModel, NotGenerated, NotLifted, Span
from fusegen.models.lift.constructor_decisions import decided_in_constructor, structure
from fusegen.models.lift.decisions import Decided, watching
from fusegen.models.lift.found import Found, regions_of, with_norms
from fusegen.models.lift.fx_graph import line_of, what
from fusegen.models.lift.labels import labelled
from fusegen.models.lift.lifted import name_of
from fusegen.models.lift.load import Problem, line_span, refuse_variadic, telling
from fusegen.models.lift.model_graphs import as_written, refuse_hooks
from fusegen.models.lift.partial.attributes import attribute, label_numbers
from fusegen.models.lift.partial.call_text import required_mode, required_value
from fusegen.models.lift.partial.forward_items import Context
from fusegen.models.lift.partial.forward_text import CannotWrite, forward_lines
from fusegen.models.lift.partial.held import constants, free, in_regions, kinds, required
from fusegen.models.lift.partial.module import HEAD, NoForward, module_text
from fusegen.models.lift.partial.readable import make_readable
from fusegen.models.lift.regions.biases import split_biases, without_bias
from fusegen.models.lift.regions.builds import Named, alike, named
from fusegen.models.lift.rule import ALONE, Rule
from fusegen.models.lift.source_text import statement_at, variable_of
from fusegen.models.lift.spec_text import is_edited, with_digest, without_digest
from fusegen.models.reader.aten_calls import TRACING
from fusegen.models.reader.aten_table import ROWS
from fusegen.models.reader.row_calls import OF_ROWS
from fusegen.models.reader.window_calls import WINDOWS

WITHOUT_BIAS = "from ._runtime.producers import without_bias"
TABLE = {**ROWS, **OF_ROWS, **WINDOWS}
EACH = "return a value for each"
PYTORCH = "leave the model to PyTorch"


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
    model, numbers = _made(problem)
    inputs = _inputs(problem)
    with watching(str(problem.path), problem.get_inputs.__globals__) as decided:
        found = _found(problem, model, inputs, rule)
    known = named(found.chosen, specs, f"lifted from {problem.source}", problem.get_inputs.__globals__)
    regions = in_regions(problem, numbers, [each.region for each in found.chosen])
    both = {**regions, **decided}, decided_in_constructor(problem, structure(problem))
    text = _text(problem, found, known, both, constants(problem, inputs))
    tensors = (
        *(each for each in inputs.values() if isinstance(each, Tensor)),
        *model.parameters(),
        *model.buffers(),
    )
    chosen = name or name_of(problem)
    if chosen in known.names.values():
        chosen = f"{chosen}_model"
    return Partial(chosen, text, problem, found, known, tensors, free(problem, both, numbers_of))


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
    arguments = {name: labelled(name, value) for name, value in problem.arguments().items()}
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


def _text(
    problem: Problem,
    found: Found,
    known: Named,
    decided: tuple[
        Decided, Decided
    ],  # numbers that decide what forward runs, and what the constructor makes
    held: Mapping[str, Any],  # arguments that the trace holds
) -> str:
    """Return the text of the file.

    Raises:
        NotAModel: it cannot be written.
    """
    contexts = [_context(problem, found, known, graph) for graph in found.modes.graphs]
    try:
        forwards = [forward_lines(context) for context in contexts]
        in_forward, in_constructor = (list(required(of)) for of in decided)
        in_forward += [line for name, value in held.items() for line in required_value(value, name)]
        in_forward += kinds(found)
        lines = [*in_forward, *_in_modes(forwards, _requirements(found))]
        text = problem.path.read_text(encoding="utf-8")
        head, imports = _head(problem, found, known), _imports(problem, found, known)
        return with_digest(module_text(text, problem.attribute, head, imports, (lines, in_constructor)))
    except CannotWrite as error:
        span = line_span(problem.path, line_of(problem, error.node))
        raise NotLifted(span, node=what(error.node), why=error.why, remedy=PYTORCH) from None
    except NoForward as error:
        raise NotAModel(
            line_span(problem.path, 0), why=str(error), remedy="write the class out in the file"
        ) from None


def _head(problem: Problem, found: Found, known: Named) -> str:
    calls = {known.names[each.key]: each for each in reversed(found.chosen)}
    shown = (f"#   {name}({', '.join(each.inputs)}): {each.body}" for name, each in reversed(calls.items()))
    return HEAD.format(source=problem.source, model=problem.attribute, kernels="\n".join(shown))


def _context(problem: Problem, found: Found, known: Named, graph: fx.Graph) -> Context:
    """Return the context of the text of one graph, which then calls what a file calls."""
    make_readable(graph, {node for each in found.chosen for node in each.region.nodes})
    return Context(
        graph,
        {each.region.result: each for each in found.chosen},
        known.names,
        {"torch": torch, "without_bias": without_bias, **problem.get_inputs.__globals__},
        {node: line_of(problem, node) for node in graph.nodes},
        lambda line: variable_of(statement_at(str(problem.path), line)),
    )


def _requirements(found: Found) -> list[list[str]]:
    """The lines that require the modes of modules that forward reads, of training and of evaluation."""
    model = found.model
    return [
        [
            line
            for path, mode in read.items()
            if path
            for line in required_mode(attribute(model, path), mode)
        ]
        for read in found.modes.read
    ]


def _in_modes(forwards: Sequence[list[str]], required: Sequence[list[str]]) -> list[str]:
    """Return the lines of forward: of its only graph, or those of training and those of evaluation."""
    pairs = zip(required or [[]], forwards, strict=True)
    *training, last = ([*first, *rest] for first, rest in pairs)
    of_mode = [f"    {line}" for each in training for line in each]
    return [*(["if self.training:"] if training else []), *of_mode, *last]


def _imports(problem: Problem, found: Found, known: Named) -> list[str]:
    """Return the lines that import what forward calls."""
    lines = [] if problem.get_inputs.__globals__.get("torch") is torch else ["import torch"]
    if any(node.target is without_bias for graph in found.modes.graphs for node in graph.nodes):
        lines.append(WITHOUT_BIAS)
    used = {known.names[each.key]: each.region.layer for each in found.chosen}
    kernels = (f"KERNELS as {name}" if used[name] else name for name in sorted(used))
    imports = (f"from .{each.split()[-1]} import {each}" for each in kernels)
    return ["", *lines, *imports]
