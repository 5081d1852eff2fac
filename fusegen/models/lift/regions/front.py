"""The convolution in front of a region, which only the region reads: on CUDA both may be one kernel."""

import operator
from dataclasses import dataclass

from torch import fx, nn

from fusegen.models.lift.fx_graph import HOOKS
from fusegen.models.lift.regions.biases import without_bias
from fusegen.models.lift.regions.region import Region
from fusegen.models.reader.aten_calls import layer_of

DEFAULTS = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1, "padding_mode": "zeros"}
CONVOLUTION = "conv"  # the name of the convolution in a spec


@dataclass(frozen=True)
class Front:
    """A Conv2d in front of a region."""

    layer: nn.Conv2d  # it
    path: str  # of the layer in the model
    x: fx.Node  # the node that it reads
    output: fx.Node  # the node of its output, which is without the bias where the region adds that
    bias: fx.Node | None  # the node of the bias that the region adds; None where the layer has none
    behind: Region  # the region without that addition

    @property
    def others(self) -> tuple[fx.Node, ...]:
        """The nodes that the region reads besides."""
        return self.behind.inputs[1:]

    @property
    def calls(self) -> tuple[fx.Node, ...]:
        """The nodes that a call of both replaces, besides those of the region; readers come first."""
        if self.bias is None:
            return (self.output,)
        pair = _node(self.output.args[0])
        return (self.bias, self.output, pair, _node(pair.args[0]))

    @property
    def arguments(self) -> str:
        """The arguments of the layer, as Python writes them."""
        of = self.layer
        given = [repr(each) for each in (of.in_channels, of.out_channels, of.kernel_size)]
        named = {name: getattr(of, name) for name in DEFAULTS}
        given += [f"{name}={value!r}" for name, value in named.items() if value != DEFAULTS[name]]
        return ", ".join([*given, *["bias=False"] * (of.bias is None)])


def front_of(region: Region) -> Front | None:
    """Return the convolution in front of a region of a graph whose biases are split, if there is one."""
    output = region.inputs[0]
    pair = output.args[0] if output.target is operator.getitem else None
    if isinstance(pair, fx.Node) and pair.target is without_bias:
        return _with_bias(region, output, pair)
    layer = layer_of(output)
    if type(layer) is not nn.Conv2d or layer.bias is not None or not _reads_one(output):
        return None
    if any(getattr(layer, hooks) for hooks in HOOKS) or not set(output.users) <= set(region.nodes):
        return None
    return Front(layer, str(output.target), _node(output.args[0]), output, None, region)


def _with_bias(region: Region, output: fx.Node, pair: fx.Node) -> Front | None:
    """Return the convolution whose bias a region adds."""
    of, x = pair.args
    owner = region.result.graph.owning_module
    layer = owner.get_submodule(str(_node(of).target)) if owner is not None else None
    items = [each for each in region.inputs[1:] if each.target is operator.getitem]
    bias = next((each for each in items if each.args[0] is pair), None)
    total = next((part for part in region.parts if bias in part.reads), None)
    if type(layer) is not nn.Conv2d or bias is None or total is None or len(region.parts) < 2:
        return None
    parts = tuple(part for part in region.parts if part is not total)
    others = (each for each in region.inputs[1:] if each is not bias)
    return Front(layer, str(_node(of).target), _node(x), output, bias, Region(parts, (total.node, *others)))


def _reads_one(call: fx.Node) -> bool:
    return len(call.args) == 1 and not call.kwargs


def _node(of: object) -> fx.Node:
    assert isinstance(of, fx.Node)
    return of
