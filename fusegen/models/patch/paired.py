"""Layers in an nn.Sequential that run as one kernel with the activations behind them.

Both stay in their places. The class of the nn.Sequential is derived from PyTorch's, with another forward,
and the first layer has the kernel as an attribute. Each call decides: two layers that nobody has changed or
watches are one kernel, and all others run as they are.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.fx import Proxy

from fusegen.models.patch.derived import Plain
from fusegen.project.loader import imported
from fusegen.runtime.channels_last import as_they_are
from fusegen.runtime.holders import is_under_mode, is_watched

KERNEL = "fusegen_pair"  # the attribute of a layer that holds the kernel of its pair


class Sequential(nn.Sequential):
    """An nn.Sequential in which pairs of layers may be one kernel."""

    fusegen_original = nn.Sequential

    def forward(self, input: Any) -> Any:
        """Call the layers in their order, or the kernels of pairs."""
        layers: list[Any] = [*self._modules.values(), None]
        place = 0
        while place < len(layers) - 1:
            layer, behind = layers[place : place + 2]
            kernel = kernel_of(layer, behind, input)
            input = layer(input) if kernel is None else kernel(layer, behind, input)
            place += 1 if kernel is None else 2
        return input


def paired(holder: nn.Sequential) -> set[nn.Module]:
    """Return the activations that run in pairs."""
    rows = itertools.pairwise(holder._modules.values())
    return {second for first, second in rows if second is not None and kernel_of(first, second) is not None}


@dataclass(frozen=True)
class Kernel:
    """The kernel of a pair, imported again where it is unpickled."""

    path: Path  # of the module
    kernels: Any  # of the module; its function takes the bias of a convolution
    kind: type[nn.Module]  # the class of the layer: a convolution or nn.Linear
    plain: Plain  # the activation

    def __call__(self, layer: nn.Module, activation: nn.Module, x: Tensor) -> Any:
        """Return the activation of what the layer makes."""
        numbers = self.plain.values(activation)
        if self.kind is nn.Linear:
            both = self.kernels.multiplied(layer, x, *numbers)
            if both is not None:
                return both
            y = self.kernels.linear(layer, x)
            out = self.kernels.reused(layer, y)
            return self.kernels.call(y, *numbers, out=out)
        is_product = self.kernels.sources.product  # of single pixels
        run = self.kernels.multiplied if is_product else self.kernels.convolved
        both = run(layer, x, None, *numbers)
        if both is not None:
            return both
        split = self.kernels.linear_without_bias if is_product else self.kernels.without_bias
        y, bias = split(layer, x, as_they_are)  # as eager lays it: forwards behind may take views
        out = self.kernels.reused(layer, y, bias)
        return self.kernels.call(y, bias, *numbers, out=out)

    def __reduce__(self) -> tuple[Any, ...]:
        return read, (self.path, self.kind, self.plain)


def read(path: Path, kind: type[nn.Module], plain: Plain) -> Kernel:
    """Import the kernel of a pair."""
    return Kernel(path, imported(path).KERNELS, kind, plain)


def kernel_of(
    layer: nn.Module | None,  # the first one
    activation: nn.Module | None,  # the one behind it
    given: Any = None,  # the input. Tracers of torch.fx record layers, and modes see PyTorch's operations
) -> Kernel | None:
    """Return the kernel of two layers in a row; None where both run as they are."""
    kernel: Kernel | None = None if layer is None else vars(layer).get(KERNEL)
    if kernel is None or layer is None or type(layer) is not kernel.kind or is_watched(layer):
        return None
    if isinstance(given, Proxy) or (not is_compiling() and is_under_mode()):
        return None
    return kernel if kernel.plain.is_still(activation) else None
