"""A network from a model: its regions found, built, timed and put in the place of the operations."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from torch import fx, nn

from fusegen.core import write
from fusegen.errors import NoRegion, NotAModel, Span
from fusegen.models.lift.clocks import NO_GAIN, Clock, Timing, clock_of, gaining, timed
from fusegen.models.lift.found import Found, Inputs, found
from fusegen.models.lift.network import POLICY, Network, attribute
from fusegen.models.lift.network_clock import network_timing, of_network
from fusegen.models.lift.regions import builds
from fusegen.models.lift.regions.biases import pairs_of, without_bias
from fusegen.models.lift.regions.region_module import WithoutBias, kernel_of, put_in
from fusegen.models.lift.regions.region_spec import RegionSpec
from fusegen.models.lift.rule import GRADIENT, SMALL
from fusegen.models.lift.summary import Report, summary
from fusegen.models.reader.aten_calls import value_of

FOLDER = Path("fusegen_regions")
CALLED = (  # methods that a network has from torch.nn.Module
    *("train", "__call__", "_apply", "state_dict", "load_state_dict"),
    *("_load_from_state_dict", "_save_to_state_dict", "get_extra_state", "set_extra_state"),
)
OWN_METHOD = "its class has a {} of its own, which a network would not call"
TAKEN = "it has the attribute {}, which a network has, too"
WRAPPED = "lift torch.nn.Sequential(model), which calls it"
NONE = "each operation alone is as fast in PyTorch"
REMEDY = "leave it to PyTorch"
SLOWER = "on this device all of it is slower than the model ({})"


def lifted_network(
    model: nn.Module, inputs: Any, folder: Path | str = FOLDER, modules: Path | str | None = None
) -> Network:
    """Return the network whose pointwise regions run generated kernels.

    Args:
        model: it; it is not changed, and the network shares its parameters.
        inputs: of its forward, a tensor, a sequence, or arguments by name. They say dtypes, devices and
            numbers of dimensions; other sizes may be given later.
        folder: of the specs of the regions. Those that are there are used again.
        modules: the folder of their modules; without it, that of the specs.

    Raises:
        NotAModel: the model cannot be traced, was lifted, or has what a network would lose.
        NoRegion: it has no region that is worth a kernel.
        FusegenError, SpecErrors: a file of the folders is refused.
    """
    if isinstance(model, Network):
        raise NotAModel(
            Span("Network"), why="it is a network that was lifted", remedy="lift its model again"
        )
    _require_plain(model)
    given = (
        inputs if isinstance(inputs, Mapping) else inputs if isinstance(inputs, list | tuple) else (inputs,)
    )
    regions = found(model, given)
    clock = clock_of(regions.chosen)
    lifted = network(regions, Path(folder), Path(modules or folder), clock)
    if clock is not None:
        _time(model, lifted, given)
    return lifted


def _time(model: nn.Module, lifted: Network, inputs: Inputs) -> None:
    """Add the times of a whole network to its report.

    Raises:
        NoRegion: the model is faster.
    """
    timing = network_timing(model, lifted, inputs, of_network)
    if timing is None:
        return
    if not timing.is_gain:
        raise NoRegion(Span(timing.name), node=timing.name, why=SLOWER.format(timing), remedy=REMEDY)
    lifted.timings = (*lifted.timings, timing)


def _require_plain(model: nn.Module) -> None:
    """Refuse a model with methods or attributes that its network would lose."""
    of: type[nn.Module] = type(model)
    name = of.__name__
    if isinstance(model, fx.GraphModule):
        of = of.__mro__[1]  # behind the class that torch.fx makes of one graph, which has a __call__
    for method in CALLED:
        if getattr(of, method) is not getattr(nn.Module, method):
            raise NotAModel(Span(name), why=OWN_METHOD.format(method), remedy=WRAPPED)
    given = {*vars(model), *model._modules, *model._parameters, *model._buffers}
    for own in (*vars(Network), *Network.__annotations__, POLICY):
        if own in given and not hasattr(nn.Module, own):
            raise NotAModel(Span(name), why=TAKEN.format(own), remedy=WRAPPED)


def network(of: Found, specs: Path, modules: Path, clock: Clock | None = None) -> Network:
    """Return the network of a model's regions that gain by a clock, from the folders of specs and modules.

    Raises:
        NoRegion: there is no region, or none gains.
        FusegenError, SpecErrors: a file is refused.
    """
    names = named_regions(of, specs)
    for change in builds.written(names):
        write.apply(change)
    remarks = builds.build(list(names.texts), modules, specs)
    kernels, calls = _kernels(of, names, modules)
    timings: tuple[Timing, ...] = ()
    if clock is not None:
        calls, timings = gaining(
            calls, lambda each, name, what: timed(each, kernels[name], clock, (name, what)), of.modes.graphs
        )
    if not calls:
        raise NoRegion(Span(of.name), node=of.name, why=NO_GAIN, remedy=REMEDY)
    report = tuple(_report(of, names, [region for region, _ in calls]).lines())
    kernels = {name: kernels[name] for _, name in calls}
    readers = {pair: names.names[region.key] for region, _ in calls for pair in pairs_of(region.region)}
    for graph in of.modes.graphs:
        put_in(graph, [call for call in calls if call[0].region.result.graph is graph])
    kernels |= _without_biases(of, modules, readers, kernels)
    made = Network(of.model, of.modes, kernels, remarks)
    made.timings, made._regions = timings, report
    return made


def _kernels(
    of: Found, names: builds.Named, modules: Path
) -> tuple[dict[str, nn.Module], list[tuple[RegionSpec, str]]]:
    """Return the modules of kernels by their attributes, and the regions with the attribute of each."""
    kernels: dict[str, nn.Module] = {}
    paths: dict[object, str] = {}
    calls: list[tuple[RegionSpec, str]] = []
    for region in of.chosen:
        name, which = names.names[region.key], (region.key, region.numbers)
        if which not in paths:  # whose original operations have these numbers
            paths[which] = attribute(name, of.model, kernels)
            kernels[paths[which]] = kernel_of(modules / f"{name}.py", region)
        calls.append((region, paths[which]))
    return kernels, calls


def _without_biases(
    of: Found, modules: Path, readers: Mapping[fx.Node, str], taken: Container[str]
) -> dict[str, nn.Module]:
    """Have modules run convolutions without their biases; return these by their attributes.

    Args:
        of: the regions of the model.
        modules: the folder of the generated modules.
        readers: the name of the module that reads a convolution, by its call.
        taken: attributes of other modules.
    """
    made: dict[str, nn.Module] = {}
    paths: dict[str, str] = {}
    for node in (node for graph in of.modes.graphs for node in graph.nodes):
        if node.target is without_bias:
            reader = readers.get(node, "")
            if reader not in paths:
                wished = "_of_".join([without_bias.__name__, *[reader] * bool(reader)])
                paths[reader] = attribute(wished, of.model, taken)
                made[paths[reader]] = WithoutBias(modules, reader)
            node.op, node.target = "call_module", paths[reader]
    return made


def _report(of: Found, names: builds.Named, kept: list[RegionSpec]) -> Report:
    """Return a network's report, in which regions without a gain are PyTorch's."""
    return summary(of.without(kept, NO_GAIN), names, value_of(kept[0].region.result).device.type)


def named_regions(of: Found, specs: Path) -> builds.Named:
    """Return the regions of a model with their specs.

    Raises:
        NoRegion: there is none.
    """
    if not of.chosen:
        why = next((why for why in (SMALL, GRADIENT) if why in of.left.values()), NONE)
        raise NoRegion(Span(of.name), node=of.name, why=why, remedy=REMEDY)
    return builds.named(of.chosen, specs, f"lifted from {of.name}")
