"""A network whose pointwise regions run generated kernels."""

from __future__ import annotations

import copy
from collections.abc import Container, Mapping
from dataclasses import replace
from types import MethodType
from typing import Any

from torch import fx, nn

from fusegen.models.lift.clocks import Timing
from fusegen.models.lift.forwards import BOUND, Kind, function_of, in_mode, or_itself
from fusegen.models.lift.fx_graph import copied
from fusegen.models.lift.modes import Modes
from fusegen.models.lift.pickled import graph_of, rows
from fusegen.models.lift.regions.region_module import Kernel
from fusegen.models.reader.capture import TENSOR
from fusegen.runtime import together

POLICY = "_compile_policy"  # the attribute of a network


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
        timings: of regions on a GPU, by which some are left to PyTorch, and of the whole network; each
            prints as a sentence.
    """

    modes: Modes
    _own_kind: Kind
    remarks: tuple[str, ...]
    timings: tuple[Timing, ...]
    _regions: tuple[str, ...]  # the lines of its report on kernels, and on what stays PyTorch's

    def __init__(
        self,
        model: nn.Module,
        modes: Modes,
        kernels: Mapping[str, nn.Module],
        remarks: tuple[str, ...] = (),
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
        self.remarks, self.timings, self._regions = remarks, (), ()
        names: dict[int, str] = {}
        self._own_kind = Kind(type(model))
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
    def report(self) -> str:
        """Its kernels, the model's lines in them, the bytes saved, what stays PyTorch's, and times."""
        return "\n".join((*self._regions, *map(str, self.timings)))

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
                node.target = names.setdefault(id(kept), attribute(str(node.target), self))
                setattr(self, node.target, kept)
            node.meta = {}
        return own

    def _compile(self) -> None:
        read = [
            [(self.get_submodule(path), mode) for path, mode in of.items() if path]
            for of in self.modes.read
        ]
        lifted = in_mode([*map(function_of, self.modes.graphs)], read)
        assert self.modes.signature is not None
        lifted = self.modes.signature.called(lifted, self, getattr(self._own_kind.of, "forward", None))
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


def attribute(name: str, model: nn.Module, taken: Container[str] = ()) -> str:
    """Return a name that a model does not have as an attribute, and that is not taken."""
    while hasattr(model, name) or name in taken:
        name = f"{name}_kernel" if name.isidentifier() and not name[-1].isdigit() else f"{name}_0"
    return name
