"""The report of a partial model: its regions and kernels, and what stays PyTorch's."""

from collections.abc import Iterator

from fusegen.errors import counted
from fusegen.models.lift.fx_graph import what
from fusegen.models.lift.partial.partial_model import Partial
from fusegen.models.lift.regions.biases import bias_of, without_bias
from fusegen.models.lift.regions.worth import traffic


def report(of: Partial) -> Iterator[str]:
    """Yield sentences, in order."""
    chosen = of.found.chosen
    kernels = counted(len(set(of.specs.names.values())), "kernel")
    yield f"{counted(len(chosen), 'region')} in {kernels}"
    for each in chosen:
        nodes = [part.node for part in each.region.parts if part.is_value]
        operations = ", ".join(f"{bias_of(node) or what(node)}{_line(of.line(node))}" for node in nodes)
        passes = counted(traffic(each.region).passes, "pass").replace("passs", "passes")
        yield f"{of.specs.names[each.key]}: {operations}, in place of {passes} over memory"
    for node, why in of.found.left.items():
        if node.target is without_bias:
            yield f"PyTorch's: {node.all_input_nodes[0].target}{_line(of.line(node))} without its bias"
        else:
            yield f"PyTorch's: {what(node)}{_line(of.line(node))}: {why}"


def _line(line: int) -> str:
    return f" (line {line})" if line else ""
