"""The module that runs a region in a network, and its call in the graph."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import getitem
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from fusegen.codegen import runtime_text
from fusegen.models.lift.labels import plain
from fusegen.models.lift.regions.biases import without_bias
from fusegen.models.lift.regions.norms import is_batch_norm
from fusegen.models.lift.regions.original import original
from fusegen.models.lift.regions.own_formulas import DTYPES
from fusegen.models.lift.regions.pointwise import constant_of
from fusegen.models.lift.regions.region import Region
from fusegen.models.lift.regions.region_spec import RegionSpec
from fusegen.project.loader import imported

PLAIN = (Tensor, nn.Parameter)
DEVICES = ("cpu", "cuda")
KERNELS = "KERNELS"  # the kernels of a generated module
VALUE, RUN = "value", "run"  # attributes that no pickle has


@dataclass(frozen=True)
class OfRows:
    """The call of kernels of rows and windows, by what it has besides a region's tensors."""

    along: int  # how many tensors, the last ones, run along the channels
    groups: tuple[int, ...]  # the number of groups, if the kernels have some
    # for each result, the index in which it has the dimensions of eager's; empty where it has them
    restored: tuple[tuple[Any, ...], ...]

    def called(
        self, run: Callable[..., Any], tensors: tuple[Tensor, ...], numbers: tuple[float, ...]
    ) -> Any:
        """Return the results of kernels as eager has them."""
        first = len(tensors) - self.along
        views = (each[(..., *[None] * (tensors[0].dim() - 2))] for each in tensors[first:])
        made = run(*tensors[:first], *views, *numbers, *self.groups)
        if not any(self.restored):
            return made
        several = made if isinstance(made, tuple) else (made,)
        found = tuple(t[at] if at else t for t, at in zip(several, self.restored, strict=True))
        return found if len(found) > 1 else found[0]


def of_rows(region: Region) -> OfRows | None:
    """Return what a call of the kernels of a region has besides its tensors, if it reduces any."""
    if not region.reduces:
        return None
    groups = (plain(region.rows.groups),) if region.rows and region.rows.groups else ()
    return OfRows(len(region.along), groups, tuple(map(region.restored_of, region.results)))


class Imported(nn.Module):
    """The module of a value of a generated file, which is imported again where a copy is unpickled.

    It has no parameters and no buffers, so that the state_dict of a network stays as it is.
    """

    value: Any  # it
    run: Callable[..., Any]  # the function of a call

    def __init__(self, module: Path, name: str) -> None:
        """Import the value of a name from a file."""
        super().__init__()
        self.module, self.name = module.resolve(), name
        self._load()

    def __call__(self, *given: Any) -> Any:
        """Return the result of `run`; a call by way of `torch.nn.Module`, for hooks, takes longer."""
        own = self._forward_hooks or self._forward_pre_hooks
        if own or self._backward_hooks or self._backward_pre_hooks:
            return super().__call__(*given)
        return self.run(*given)

    def forward(self, *given: Any) -> Any:
        """Return the result of `run`."""
        return self.run(*given)

    def extra_repr(self) -> str:
        """Return the name of the generated module."""
        return self.module.stem

    def _load(self) -> None:
        vars(self)[VALUE] = getattr(imported(self.module), self.name)
        vars(self)[RUN] = self._run()

    def _run(self) -> Any:
        """Return the function of a call, by the value."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in (VALUE, RUN)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._load()


class Kernel(Imported):
    """The module of a region: its kernel where that takes the tensors, else the operations as they were.

    Attributes:
        value: the kernels of the generated module.
        original: the operations of the region; no child, so that it is not in named_modules.
    """

    def __init__(
        self, module: Path, original: fx.GraphModule, numbers: int, of: OfRows | None = None
    ) -> None:
        """Import the kernels of a module, which take tensors and so many numbers."""
        self.of, self.numbers = of, numbers
        super().__init__(module, KERNELS)
        vars(self)["original"] = original

    def _run(self) -> Any:
        if self.of is not None:  # whose tensors `run` has as kernels take them
            return self._otherwise
        return self.value.run_or(self._otherwise)

    def parted(self, given: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the tensors and the numbers of a call."""
        last = len(given) - self.numbers
        return given[:last], given[last:]

    def _otherwise(self, *given: Any) -> Any:
        """Return the result of masks and others, and of tensors that no kernel takes."""
        tensors, numbers = self.parted(given)
        if not fits(tensors):
            return vars(self)["original"](*given)
        call = self.value.call
        return call(*given) if self.of is None else self.of.called(call, tensors, numbers)


class Normed(Kernel):
    """The module of a region with a batch norm: its kernel has the mode and the statistics of the layer."""

    def _run(self) -> Any:
        kernels = self.value

        def run(layer: Any, *given: Any) -> Any:
            if is_batch_norm(layer) and fits(self.parted(given)[0]):
                return kernels.layer(layer, *given, layer.eps)
            return vars(self)["original"](layer, *given)

        return run


class Dropped(Kernel):
    """The module of a region with a dropout: its function draws the mask, if the mode says so."""

    def _run(self) -> Any:
        function = getattr(imported(self.module), self.module.stem)

        def run(training: Any, *given: Any) -> Any:
            if fits(self.parted(given)[0]):
                return function(*given, training=training)
            return vars(self)["original"](training, *given)

        return run


class Convolved(Kernel):
    """The module of a thin convolution and the region behind it, which may be one kernel."""

    def _run(self) -> Any:
        kernels, behind = self.value, super()._run()

        def run(layer: nn.Conv2d, x: Tensor, *given: Any) -> Any:
            others, numbers = self.parted(given)
            # None is the bias, if the layer had one
            made = kernels.convolved(layer, x, *[*others, None][: kernels.inputs - 1], *numbers)
            if made is not None:
                return made
            y, bias = kernels.without_bias(layer, x)
            return behind(*(y, *others, bias)[: kernels.inputs], *numbers)

        return run


def kernel_of(module: Path, of: RegionSpec) -> Kernel:
    """Return the kernel of a region, of a generated module."""
    kind = Normed if of.region.layer else Dropped if of.region.drops else Convolved if of.front else Kernel
    rows = None if of.region.layer or of.region.drops else of_rows(of.region)
    return kind(module, original(of.region, of.inputs_of_kernel, of.numbers), len(of.numbers), rows)


class WithoutBias(Imported):
    """The module of a convolution without its bias, laid as the kernels that add the bias read it."""

    def __init__(self, modules: Path, reader: str = "") -> None:
        """Import the kernels of a module by its name, or the function, where PyTorch adds the bias."""
        alone = modules / runtime_text.FOLDER / "producers.py", without_bias.__name__
        super().__init__(*((modules / f"{reader}.py", KERNELS) if reader else alone))

    def _run(self) -> Any:
        return getattr(self.value, without_bias.__name__, self.value)


def fits(tensors: tuple[Any, ...]) -> bool:
    """Return True if a kernel takes the inputs of a region: plain tensors like the first, and masks."""
    first = tensors[0]
    if first.__class__ not in PLAIN or first.dtype not in DTYPES:
        return False
    dtype, device = first.dtype, first.device
    if device.type not in DEVICES:
        return False
    for each in tensors:  # no generator: a call of a small network waits for this
        if each.__class__ not in PLAIN or each.layout is not torch.strided or each.device != device:
            return False
        if each.dtype is not dtype and each.dtype is not torch.bool:
            return False
    return True


def put_in(graph: fx.Graph, calls: Sequence[tuple[RegionSpec, str]]) -> None:
    """Replace the nodes of regions, in order, by calls of the modules at their paths."""
    made: dict[fx.Node, fx.Node] = {}
    for of, path in calls:
        region, front = of.region, of.front
        with graph.inserting_before(region.result):
            inputs = tuple(made.get(node, node) for node in of.inputs_of_kernel)
            given = region.layer or region.drops
            if given:
                read = graph.create_node("get_attr", given) if isinstance(given, str) else given
                inputs = (read, *inputs)
            if front is not None:
                layer, x = graph.get_attr(front.path), made.get(front.x, front.x)
                inputs = (layer, x, *inputs[1 : 1 + len(front.others)])
            call = graph.create_node("call_module", path, (*inputs, *of.numbers))
            count = len(region.results) if region.others else 0
            items = [graph.call_function(getitem, (call, place)) for place in range(count)]
        for node, item in zip(region.results, items or [call], strict=True):
            item.meta = dict(node.meta)
            made[node] = item
            for user in [user for user in node.users if user not in region.nodes]:
                user.replace_input_with(node, item)
    inside = [node for of, _ in calls for node in of.region.nodes]
    read = (each for node in inside for each in node.all_input_nodes if constant_of(each) is not None)
    fronts = (node for of, _ in calls if of.front is not None for node in of.front.calls)
    for node in (*reversed(inside), *dict.fromkeys([*read, *fronts])):
        if not node.users:
            graph.erase_node(node)
