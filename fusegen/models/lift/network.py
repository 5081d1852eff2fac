"""A network whose pointwise regions run generated kernels."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any

from torch import fx, nn

from fusegen.core import write
from fusegen.errors import NoRegion, NotAModel, Span
from fusegen.models.lift.clocks import NO_GAIN, Clock, Timing, clock_of, gaining
from fusegen.models.lift.forwards import BOUND, Kind, Needed, function_of, in_mode, or_itself
from fusegen.models.lift.found import Found, found
from fusegen.models.lift.fx_graph import copied
from fusegen.models.lift.modes import Modes
from fusegen.models.lift.pickled import graph_of, rows
from fusegen.models.lift.regions import builds
from fusegen.models.lift.regions.biases import without_bias
from fusegen.models.lift.regions.region_module import Kernel, WithoutBias, kernel_of, put_in
from fusegen.models.lift.regions.region_spec import RegionSpec
from fusegen.models.lift.rule import GRADIENT, SMALL
from fusegen.models.reader.capture import TENSOR
from fusegen.runtime import together

FOLDER = Path("fusegen_regions")
POLICY = "_compile_policy"  # the attribute of a network
CALLED = (  # methods that a network has from torch.nn.Module
    *("train", "__call__", "_apply", "state_dict", "load_state_dict"),
    *("_load_from_state_dict", "_save_to_state_dict", "get_extra_state", "set_extra_state"),
)
OWN_METHOD = "its class has a {} of its own, which a network would not call"
TAKEN = "it has the attribute {}, which a network has, too"
WRAPPED = "lift torch.nn.Sequential(model), which calls it"
NONE = "each operation alone is as fast in PyTorch"


class Network(nn.Module):
    """A model with generated kernels in the place of its pointwise regions.

    It shares the modules, parameters and buffers of the model, under the same names. Its forward is the
    graph of the model's, in which regions are calls of `Kernel`; where other operations run in training, it
    is that of the network's mode. Calls for which the graph does not hold run the model itself, which
    compilers record, unless the policy of a region's module is ``kernel``.

    Attributes:
        modes: the graphs of forward.
        compile_policy: of all its regions, or None for that of the runtime.
        remarks: the sentences of `build` on kernels that may be slow or inaccurate.
        timings: of regions on a GPU, by which some are left to PyTorch; each prints as a sentence.
    """

    modes: Modes
    _own_kind: Kind
    remarks: tuple[str, ...]
    timings: tuple[Timing, ...]

    def __init__(
        self,
        model: nn.Module,
        modes: Modes,
        kernels: Mapping[str, nn.Module],
        remarks: tuple[str, ...] = (),
        timings: tuple[Timing, ...] = (),
    ) -> None:
        """Take over the model's state; the model stays as it is."""
        super().__init__()
        self.__dict__.update(
            {
                key: copy.copy(value)
                for key, value in model.__dict__.items()
                if key not in BOUND and not isinstance(value, fx.Graph)
            }
        )
        self._modules.update(kernels)
        vars(self).update(kernels)  # attributes that Python finds without nn.Module's __getattr__
        self.remarks, self.timings = remarks, timings
        names: dict[int, str] = {}
        self._own_kind = (Kind if modes.signature is None else Needed)(type(model))
        self.modes = replace(modes, graphs=tuple(self._owned(each, names) for each in modes.graphs))
        self._compile()

    @property
    def graph(self) -> fx.Graph:
        """The graph of forward in the network's mode."""
        return self.modes.graphs[0 if self.training else -1]

    @property
    def code(self) -> str:
        """The Python code of forward in the network's mode."""
        return self.graph.python_code("self").src

    @property
    def compile_policy(self) -> str | None:
        """The policy of its regions under compilers, where they have one of their own."""
        return vars(self).get(POLICY)

    @compile_policy.setter
    def compile_policy(self, policy: str | None) -> None:
        for each in self._kernels():
            each.value.compile_policy = policy
        vars(self)[POLICY] = policy

    def _kernels(self) -> list[Kernel]:
        return [each for each in self.children() if isinstance(each, Kernel)]

    def _owned(self, graph: fx.Graph, names: dict[int, str]) -> fx.Graph:
        """Return a copy of a graph whose tensors are attributes, of which some have names, by their ids."""
        own = copied(graph)
        for node in own.nodes:
            kept = node.meta.get(TENSOR)
            if kept is not None:
                node.target = names.setdefault(id(kept), _attribute(str(node.target), self))
                setattr(self, node.target, kept)
            node.meta = {}
        return own

    def _compile(self) -> None:
        read = [
            [(self.get_submodule(path), mode) for path, mode in of.items() if path]
            for of in self.modes.read
        ]
        lifted = in_mode([*map(function_of, self.modes.graphs)], read)
        if self.modes.signature is not None:
            lifted = self.modes.signature.called(lifted, self, self._own_kind.of.forward)
        forward = or_itself(lifted, self, [each.value for each in self._kernels()])
        together.join(each.value for each in self._kernels())
        vars(self)["forward"] = MethodType(forward, self)  # with the arguments of the model's

    def __getstate__(self) -> dict[str, Any]:
        module: Any = super()
        state = {key: value for key, value in module.__getstate__().items() if key not in BOUND}
        state["modes"] = (replace(self.modes, graphs=()), [*map(rows, self.modes.graphs)])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        modes, graphs = state["modes"]
        self.modes = replace(modes, graphs=tuple(map(graph_of, graphs)))
        self._compile()
        self.compile_policy = state.get(POLICY)

    def _replicate_for_data_parallel(self) -> Network:
        """Return a replica whose forward reads its own tensors."""
        module: Any = super()
        replica: Network = module._replicate_for_data_parallel()
        forward: Any = vars(self)["forward"]
        vars(replica)["forward"] = MethodType(forward.__func__, replica)
        return replica


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
    return network(regions, Path(folder), Path(modules or folder), clock_of(regions.chosen))


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
    for attribute in (*vars(Network), *Network.__annotations__, POLICY):
        if attribute in given and not hasattr(nn.Module, attribute):
            raise NotAModel(Span(name), why=TAKEN.format(attribute), remedy=WRAPPED)


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
    kernels: dict[str, nn.Module] = {}
    calls: list[tuple[RegionSpec, str]] = []
    for region in of.chosen:
        name = names.names[region.key]
        attribute = _attribute(name, of.model)
        if attribute not in kernels:
            kernels[attribute] = kernel_of(modules / f"{name}.py", region)
        calls.append((region, attribute))
    calls, timings = gaining(calls, kernels, clock, of.modes.graphs)
    if not calls:
        raise NoRegion(Span(of.name), node=of.name, why=NO_GAIN, remedy="leave it to PyTorch")
    kernels = {name: kernels[name] for _, name in calls}
    attribute = _attribute(without_bias.__name__, of.model)
    for graph in of.modes.graphs:
        put_in(graph, [call for call in calls if call[0].region.result.graph is graph])
        for node in graph.nodes:
            if node.target is without_bias:
                node.op, node.target = "call_module", attribute
                kernels.setdefault(attribute, WithoutBias(modules))
    return Network(of.model, of.modes, kernels, remarks, timings)


def named_regions(of: Found, specs: Path) -> builds.Named:
    """Return the regions of a model with their specs.

    Raises:
        NoRegion: there is none.
    """
    if not of.chosen:
        why = next((why for why in (SMALL, GRADIENT) if why in of.left.values()), NONE)
        raise NoRegion(Span(of.name), node=of.name, why=why, remedy="leave it to PyTorch")
    return builds.named(of.chosen, specs, f"lifted from {of.name}")


def _attribute(name: str, model: nn.Module) -> str:
    """Return a name that a model does not have as an attribute."""
    while hasattr(model, name):
        name = f"{name}_kernel" if name.isidentifier() and not name[-1].isdigit() else f"{name}_0"
    return name
