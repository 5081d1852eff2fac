"""The traced forward of a whole model."""

import torch

from fusegen.models.lift.constructed_state import Constructed
from fusegen.models.lift.fx_graph import Traced, live
from fusegen.models.lift.load import Problem
from fusegen.models.lift.model_graphs import as_constructed
from fusegen.models.lift.model_inputs import Given
from fusegen.models.lift.regions.aliases import writes
from fusegen.models.lift.trace import Reader
from fusegen.models.reader.aten_calls import TRACING


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
