"""A network whose pointwise regions run generated kernels."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from types import MethodType
from typing import Any

from torch import fx, nn

from fusegen import write
from fusegen.errors import NotAModel, NotLifted, Span
from fusegen.lift.found import Found, found
from fusegen.lift.regions import builds
from fusegen.lift.regions.biases import without_bias
from fusegen.lift.regions.examples import TENSOR
from fusegen.lift.regions.kernel import Convolved, Kernel, WithoutBias, original, put_in

FOLDER = Path("fusegen_regions")
NONE = "no region of it is worth a kernel: each operation alone is as fast in PyTorch"


class Network(nn.Module):
    """A model with generated kernels in the place of its pointwise regions.

    It shares the modules, parameters and buffers of the model, under the same names. Its forward is the
    graph of the model's, in which regions are calls of `Kernel`.

    Attributes:
        graph: of forward; `code` is its Python.
        remarks: the sentences of `build` on kernels that may be slow or inaccurate.
    """

    def __init__(
        self,
        model: nn.Module,
        graph: fx.Graph,
        kernels: Mapping[str, nn.Module],
        remarks: tuple[str, ...] = (),
    ) -> None:
        """Take over the model's state; the model stays as it is."""
        super().__init__()
        self.__dict__.update(
            {key: copy.copy(value) for key, value in model.__dict__.items() if key != "forward"}
        )
        self._modules.update(kernels)
        self.remarks = remarks
        self.graph = fx.Graph()
        self.graph.output(self.graph.graph_copy(graph, {}))  # without erased nodes, and what they held
        for node in self.graph.nodes:
            kept = node.meta.get(TENSOR)
            if kept is not None:
                setattr(self, str(node.target), kept)
            node.meta = {}
        self._compile()

    @property
    def code(self) -> str:
        """The Python code of forward."""
        return self.graph.python_code("self").src

    def _compile(self) -> None:
        code = self.graph.python_code("self")
        names = dict(code.globals)
        exec(compile(code.src, f"<the forward of a {type(self).__name__}>", "exec"), names)
        vars(self)["forward"] = MethodType(names["forward"], self)  # with the arguments of the model's

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "forward"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._compile()


def lifted_network(
    model: nn.Module, inputs: Any, folder: Path | str = FOLDER, modules: Path | str | None = None
) -> Network:
    """The network whose pointwise regions run generated kernels.

    Args:
        model: it; it is not changed, and the network shares its parameters.
        inputs: of its forward, a tensor or a sequence. They say dtypes, devices and numbers of dimensions;
            other sizes may be given later.
        folder: of the specs of the regions. Those that are there are used again.
        modules: the folder of their modules; without it, that of the specs.

    Raises:
        NotAModel: the model cannot be traced, or was lifted.
        NotLifted: it has no region that is worth a kernel.
        FusegenError, SpecErrors: a file of the folders is refused.
    """
    if isinstance(model, Network):
        raise NotAModel(
            Span("Network"), why="it is a network that was lifted", remedy="lift its model again"
        )
    given = tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)
    return network(found(model, given), Path(folder), Path(modules or folder))


def network(of: Found, specs: Path, modules: Path) -> Network:
    """The network of a model's regions, whose modules are built.

    Args:
        of: the regions.
        specs: the folder of their specs.
        modules: that of their modules.

    Raises:
        NotLifted: there is no region.
        FusegenError, SpecErrors: a file is refused.
    """
    names = named_regions(of, specs)
    for change in builds.written(names):
        write.apply(change)
    remarks = builds.build(list(names.texts), modules, specs)
    kernels: dict[str, nn.Module] = {}
    calls = []
    for region in of.chosen:
        name = names.names[region.key]
        attribute = _attribute(name, of.model)
        if attribute not in kernels:
            steps = original(region.region, region.inputs_of_kernel)
            module = Kernel if region.front is None else Convolved
            kernels[attribute] = module(modules / f"{name}.py", steps)
        calls.append((region, attribute))
    put_in(of.graph, calls)
    apart = [node for node in of.graph.nodes if node.target is without_bias]
    if apart:
        attribute = _attribute(without_bias.__name__, of.model)
        kernels[attribute] = WithoutBias(modules)
    for node in apart:
        node.op, node.target = "call_module", attribute
    return Network(of.model, of.graph, kernels, remarks)


def named_regions(of: Found, specs: Path) -> builds.Named:
    """The regions of a model with their specs.

    Raises:
        NotLifted: there is none.
    """
    if not of.chosen:
        raise NotLifted(Span(of.name), node=of.name, why=NONE, remedy="leave it to PyTorch")
    return builds.named(of.chosen, specs, f"lifted from {of.name}")


def _attribute(name: str, model: nn.Module) -> str:
    """The name of a kernel in a network, which the model does not have."""
    while hasattr(model, name):
        name = f"{name}_kernel"
    return name
