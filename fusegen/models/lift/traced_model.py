"""The traced forward of a whole model."""

import torch
from torch import fx

from fusegen.errors import NotAModel
from fusegen.models.lift.constructed_state import Constructed
from fusegen.models.lift.fx_graph import Traced, line_of, live, own, writes_in_place
from fusegen.models.lift.load import Problem, line_span, telling
from fusegen.models.lift.model_inputs import Given
from fusegen.models.lift.record import Record
from fusegen.models.lift.regions.aliases import follow_writes
from fusegen.models.lift.regions.examples import Failed, propagate
from fusegen.models.lift.source_of_calls import note_source
from fusegen.models.lift.trace import Reader
from fusegen.models.lift.tracer import Tracer
from fusegen.models.lift.untraced import in_a_line

RUN = "make it run by itself first"
ONCE = "forward is traced once, without values: what it does may not depend on them"


def traced(problem: Problem, of: Constructed, given: Given) -> Traced:
    """Return the traced forward of a model.

    Raises:
        NotLifted: the language cannot hold it.
        NotAModel: forward raises.
    """
    record, tracer = Record(), Tracer()
    with record, telling(problem.path, "forward cannot be traced, as it raises", ONCE):
        graph = tracer.trace(of.model)
    own(graph, of.model)
    follow_writes(graph)
    note_source(graph)
    failed = _failed(of, given, graph)
    reader, needed = Reader(problem, of, record, given), live(graph)
    for node in graph.nodes:
        if node in needed or writes_in_place(node) or node.op in ("placeholder", "call_module"):
            reader.take(node)
        if failed is not None and node is failed.node:
            at = line_span(problem.path, line_of(problem, node))
            raise NotAModel(at, why=f"the model raises {in_a_line(failed.error)}", remedy=RUN)
    return reader.found()


def _failed(of: Constructed, given: Given, graph: fx.Graph) -> Failed | None:
    """Give the nodes of a graph their example values, and return what the model raises on its inputs."""
    nodes = (node for node in graph.nodes if node.op == "placeholder")
    inputs = [given.values[given.names[str(node.target)]] for node in nodes]
    try:
        with torch.device("meta"):
            propagate(of.model, graph, inputs)
    except Failed as failed:
        return failed
    return None
