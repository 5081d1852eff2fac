"""The text of the file of a partial model, from its parts."""

from collections.abc import Sequence

import torch
from torch import fx

from fusegen.errors import NotAModel, NotLifted
from fusegen.models.lift.found import Found
from fusegen.models.lift.fx_graph import line_of, what
from fusegen.models.lift.load import Problem, line_span
from fusegen.models.lift.partial.attributes import attribute
from fusegen.models.lift.partial.call_text import required_mode
from fusegen.models.lift.partial.forward_items import Context, laid_by
from fusegen.models.lift.partial.forward_text import CannotWrite, forward_lines
from fusegen.models.lift.partial.module import HEAD, NoForward, module_text
from fusegen.models.lift.partial.readable import make_readable
from fusegen.models.lift.regions.biases import without_bias
from fusegen.models.lift.regions.builds import Named
from fusegen.models.lift.source_text import statement_at, variable_of
from fusegen.models.lift.spec_text import with_digest

WITHOUT_BIAS = "from ._runtime.producers import without_bias"
PYTORCH = "leave the model to PyTorch"


def calls_of(problem: Problem, found: Found, known: Named) -> list[str]:
    """Return the lines of forward that call regions and PyTorch.

    Raises:
        NotLifted: it cannot be written.
    """
    contexts = [_context(problem, found, known, graph) for graph in found.modes.graphs]
    try:
        forwards = [forward_lines(context) for context in contexts]
    except CannotWrite as error:
        span = line_span(problem.path, line_of(problem, error.node))
        raise NotLifted(span, node=what(error.node), why=error.why, remedy=PYTORCH) from None
    return _in_modes(forwards, _requirements(found))


def file_text(
    problem: Problem,
    found: Found,
    known: Named,
    written: tuple[Sequence[str], Sequence[str]],  # the lines of forward, and those of the constructor
) -> str:
    """Return the text of the file.

    Raises:
        NotAModel: the class is not in plain view.
    """
    text = problem.path.read_text(encoding="utf-8")
    head, imports = _head(problem, found, known), _imports(problem, found, known)
    try:
        return with_digest(module_text(text, problem.attribute, head, imports, written))
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
    laid = laid_by(found.chosen, known.names)
    nodes = (node for graph in found.modes.graphs for node in graph.nodes)
    if any(node.target is without_bias and node not in laid for node in nodes):
        lines.append(WITHOUT_BIAS)
    used = {known.names[each.key]: each.region.layer for each in found.chosen}
    kernels = (f"KERNELS as {name}" if used[name] else name for name in sorted(used))
    imports = (f"from .{each.split()[-1]} import {each}" for each in kernels)
    of_rows = (f"from .{each.removesuffix('_kernels')} import KERNELS as {each}" for each in laid.values())
    return ["", *lines, *imports, *dict.fromkeys(of_rows)]
