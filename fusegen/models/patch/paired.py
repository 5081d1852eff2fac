"""Layers in an nn.Sequential that run as one kernel with the activations behind them.

Both stay in their places. The class of the nn.Sequential is derived from its own, with another forward; a
convolution or a linear layer has the kernel as an attribute. Each call decides: two layers that nobody has
changed or watches are one kernel, and all others run as they are.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.fx import Proxy

from fusegen.models.patch.batches import Batched, choices
from fusegen.models.patch.derived import Found, Plain, plan_of
from fusegen.project.loader import imported
from fusegen.runtime.channels_last import as_they_are
from fusegen.runtime.holders import is_under_mode, is_watched

KERNEL = "fusegen_pair"  # the attribute of a layer that holds the kernel of its pair


@dataclass(frozen=True)
class InRow:
    """The layers of an nn.Sequential that run as kernels with the activations behind them.

    Attributes:
        parts: the batch norms; other layers have their kernels as attributes.
    """

    parts: tuple[Batched, ...] = ()

    @property
    def acts(self) -> tuple[str, ...]:
        """The activations of batch norms."""
        return tuple(each.act for each in self.parts)

    def forward(self, kind: Any) -> Callable[..., Any]:
        """Return the forward of an nn.Sequential, or a class derived from it, with these kernels."""
        calls = {(each.name, each.act): each.call() for each in self.parts}

        def forward(layer: nn.Module, input: Any) -> Any:
            is_done = False
            for (name, each), (behind, act) in itertools.pairwise([*layer._modules.items(), ("", None)]):
                if each is None or is_done:
                    is_done = False
                    continue
                kernel, call = kernel_of(each, act, input), calls.get((name, behind))
                is_done = kernel is not None or call is not None
                if kernel is not None and act is not None:
                    input = kernel(each, act, input)
                else:
                    input = each(input) if call is None else call(each, act, input, act)
            return input

        return forward

    def found(self, holder: nn.Module) -> Found:
        """Describe a layer with these kernels."""
        name = type(holder).__name__
        texts = ((f"{name}, {each.name} and {each.act}", each) for each in self.parts)
        return Found.of(self, *((text, each.module, each.when(holder)) for text, each in texts))


def in_row(holder: nn.Module) -> InRow | None:
    """Return the norms and activations that an nn.Sequential holds; None where these are none."""
    if type(holder).forward is not nn.Sequential.forward or "forward" in vars(holder):
        return None
    choose = choices(holder) or (lambda key: None)
    rows = itertools.pairwise(holder._modules)
    parts = tuple(part for one, other in rows if (part := choose((one, other, "", ""))))
    return InRow(parts) if parts else None


def in_kernels(holder: nn.Module) -> set[nn.Module]:
    """Return the activations of a layer that run in kernels with other layers."""
    acts = getattr(plan_of(holder), "acts", ())
    found = {layer for name, layer in holder._modules.items() if layer is not None and name in acts}
    if not isinstance(holder, nn.Sequential):
        return found
    rows = itertools.pairwise(holder._modules.values())
    return found | {second for first, second in rows if second is not None and kernel_of(first, second)}


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
