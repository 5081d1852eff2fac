"""The backend of torch.compile that gives pointwise regions to generated kernels and the rest to Inductor.

It partitions the graph that dynamo captures, as operators before autograd: activations are whole, and a
region's kernel brings its own gradient.
"""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from fusegen.core import write
from fusegen.errors import FusegenError, SpecErrors
from fusegen.models.lift.dynamo_graph import operators_of, take_over
from fusegen.models.lift.float_losses import put_losses_in
from fusegen.models.lift.found import Found, regions_of
from fusegen.models.lift.lifted_network import FOLDER
from fusegen.models.lift.modes import Modes
from fusegen.models.lift.regions import builds
from fusegen.models.lift.regions.aliases import disturbs
from fusegen.models.lift.regions.pointwise import is_mask
from fusegen.models.lift.regions.region_spec import RegionSpec
from fusegen.models.lift.rule import Rule
from fusegen.models.lift.source_of_calls import note_source
from fusegen.models.reader.aten_calls import value_of
from fusegen.models.reader.aten_table import GUARDED
from fusegen.project.loader import imported
from fusegen.runtime import together

VARIABLE = "FUSEGEN_REGIONS"  # the folder of specs and modules
OPTION = "regions"  # the same, among the options of torch.compile
LEAST_PASSES = 2  # of eager over memory, from which on a region has a kernel
SOURCE = "a graph of torch.compile"
TO = torch.ops.aten.to.dtype
MODES = frozenset(  # calls that change how the operations behind them run
    "_set_grad_enabled _enter_autocast _exit_autocast _enter_inference_mode _exit_inference_mode "
    "set_grad_enabled inference_mode".split()
)


def fusegen(graph: fx.GraphModule, inputs: Sequence[Any], **given: Any) -> Callable[..., Any]:
    """Compile a graph: generated kernels for its pointwise regions, Inductor for the rest.

    Args:
        graph: that dynamo captured, with example values; it is changed.
        inputs: examples of its inputs.
        given: ``mode`` or ``options`` of torch.compile. Of the options, ``regions`` is the folder of specs
            and modules, and the others are Inductor's.

    Returns:
        The compiled graph.
    """
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx

    mode = given.get("mode")
    options = {**(list_mode_options(mode) if mode else {}), **(given.get("options") or {})}
    folder = Path(options.pop(OPTION, None) or os.environ.get(VARIABLE) or FOLDER)
    try:
        put_kernels_in(graph, folder)
    except (FusegenError, SpecErrors) as error:
        first = str(error).strip().splitlines()[0]
        warnings.warn(f"{first}; Inductor compiles this graph alone", stacklevel=2)
    compiled = compile_fx(graph, inputs, config_patches=options or None)
    assert callable(compiled)  # Inductor returns file names only when it compiles ahead of time
    return compiled


def put_kernels_in(graph: fx.GraphModule, folder: Path) -> int:
    """Replace the pointwise regions of a graph, and losses of 16 bits, by operators of generated modules.

    Args:
        graph: with example values in ``node.meta``.
        folder: of specs and modules; those that are there are used again.

    Returns:
        The number of regions and losses.

    Raises:
        FusegenError, SpecErrors: a file is refused, or the graph cannot be captured as operators.
    """
    if any(map(_is_mode, graph.graph.nodes)):
        return 0
    made = operators_of(graph)
    if any(map(disturbs, made.graph.nodes)):
        return 0
    note_source(made.graph)
    losses = put_losses_in(made.graph, LEAST_PASSES)
    of = regions_of(made, Modes((made.graph,)), Rule(LEAST_PASSES, rows=GUARDED))
    if not of.chosen and not losses:
        return 0
    kernels = _built(of, folder) if of.chosen else {}
    calls: dict[fx.Node, fx.Node] = {}
    for region in of.chosen:
        calls[region.region.result] = _call(made.graph, region, kernels[region.key], calls)
    for node in reversed([node for region in of.chosen for node in region.region.nodes]):
        if not node.users:  # else a write in place to a value of the region would stay
            made.graph.erase_node(node)
    made.graph.eliminate_dead_code()
    take_over(graph, made)
    return len(of.chosen) + len(losses)


def _is_mode(node: fx.Node) -> bool:
    """Return True if a node changes how later nodes run: no region may reach across it."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") in MODES


def _built(of: Found, folder: Path) -> Mapping[str, Any]:
    """Return the kernels of regions, by their keys."""
    names = builds.named(of.chosen, folder, SOURCE)
    for change in builds.written(names):
        write.apply(change)
    builds.build(list(names.texts), folder, folder)
    modules = {name: imported(folder / f"{name}.py") for name in dict.fromkeys(names.names.values())}
    for module in modules.values():
        module.KERNELS.compile_policy = "kernel"
    together.join(module.KERNELS for module in modules.values())
    return {key: modules[name].KERNELS for key, name in names.names.items()}


def _call(graph: fx.Graph, region: RegionSpec, kernels: Any, made: Mapping[fx.Node, fx.Node]) -> fx.Node:
    """Return the operator of a region's module, in the place of the region's result.

    Its arguments are the region's inputs in their order: an equal region has other names.
    """
    result = region.region.result
    dtype = value_of(result).dtype
    with graph.inserting_before(result):
        arguments = []
        for node in region.region.inputs:
            read = made.get(node, node)
            arguments.append(graph.call_function(TO, (read, dtype)) if is_mask(node) else read)
        call = graph.call_function(kernels.overload, tuple(arguments))
    call.meta = dict(result.meta)
    result.replace_all_uses_with(call)
    return call
