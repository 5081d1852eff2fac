"""Batch norms with the activations behind them, and a residual between them, as one kernel.

The norm keeps its tensors; its kernel moves the running statistics as PyTorch does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn.modules.batchnorm import _BatchNorm

from fusegen.models.patch.activations import function_of
from fusegen.models.patch.derived import Plain, has_hooks, is_like
from fusegen.models.patch.library import batch_names, module
from fusegen.models.reader.row_gains import EVALUATION, TRAINING, clause, gains, modes_of

FUNCTIONS: Mapping[Any, str] = {
    **{getattr(F, name): name for name in ("relu", "silu", "gelu", "hardswish")},
    torch.relu: "relu",
}


Key = tuple[str, str, str, str]  # a norm, an activation or its function, and what is between the two


@dataclass(frozen=True)
class Batched:
    """A batch norm and the activation behind it.

    Attributes:
        name: of the norm in its holder.
        kind: the class of the norm.
        function: of the library.
        of: the function of the activation.
        act: the name of the activation in its holder; empty where that is a function.
        plain: the activation as it is; None where it is a function.
    """

    name: str
    kind: type[nn.Module]
    function: str
    of: str
    act: str = ""
    plain: Plain | None = None

    @property
    def module(self) -> str:
        """The module of the library."""
        return f"batches.{self.function}"

    @property
    def acts(self) -> tuple[str, ...]:
        """The activations that are in the kernel."""
        return (self.act,) if self.act else ()

    @property
    def key(self) -> Key:
        """The norm, the activation or its function, and what is between, which decide the kernel."""
        function = "" if self.act else self.of
        return self.name, self.act, function, "add_" if "_add_" in self.function else ""

    def when(self, holder: nn.Module) -> str:
        """Return in which mode alone the kernel runs, a clause; empty where that is each."""
        return clause(modes_in(getattr(holder, self.name)))

    def call(self) -> Callable[..., Any]:
        """Return a function of the norm, the activation, a tensor, what both do apart, and a residual."""
        kernels = module(self.module).KERNELS
        forward: Any = self.kind.forward

        def run(norm: Any, act: Any, x: Any, apart: Callable[..., Any], *residual: Any) -> Any:
            if not is_compiling() and self.kind.forward is forward and self.takes(norm, act, x, residual):
                return kernels.layer(norm, x, *residual)
            return apart(norm(x), *residual)

        return run

    def takes(self, norm: Any, act: Any, x: Any, residual: tuple[Any, ...]) -> bool:
        """Tell if the kernel computes what the two do, and is faster."""
        if type(norm) is not self.kind or "forward" in vars(norm) or has_hooks(norm):
            return False
        if not (self.plain.is_still(act) if self.plain else FUNCTIONS.get(act) == self.of):
            return False
        if x.__class__ is not Tensor or not x.is_floating_point():
            return False
        check: Any = norm._check_input_dim
        check(x)
        if norm.running_mean is not None and norm.num_batches_tracked is None:
            return False
        in_batch = norm.training or norm.running_mean is None
        few = x.numel() // max(x.shape[1], 1)
        is_laid = x.is_contiguous() and all(is_like(each, x) for each in residual)
        if not is_laid or few < 2 or x.shape[1] != norm.num_features:
            return False
        written, columns = TRAINING if in_batch else EVALUATION, math.prod(x.shape[2:])
        return gains("batch_norm", written, columns, x, *residual, *norm._parameters.values())


def modes_in(norm: nn.Module) -> set[bool]:
    """Return in which modes a kernel of a batch norm is faster: with gradients recorded, or without."""
    like = next((each for each in (*norm.parameters(), *norm.buffers())), torch.empty(0))
    every = (TRAINING, EVALUATION)
    found = (modes_of("batch_norm", written, like.device.type, like.dtype, None) for written in every)
    return {mode for modes in found for mode in modes}


def choices(holder: nn.Module) -> Callable[[Key], Batched | None] | None:
    """Return what gives the kernel of a norm in a layer and what is behind it; None for no such norm."""
    names = norms_in(holder)
    return (lambda key: batched(holder, *key) if key[0] in names else None) if names else None


def norms_in(holder: nn.Module) -> set[str]:
    """Return the names of the batch norms in a layer whose kernels are faster in a mode."""
    return {name for name, layer in holder.named_children() if _is_norm(layer) and modes_in(layer)}


def _is_norm(layer: nn.Module) -> bool:
    return isinstance(layer, _BatchNorm) and type(layer).forward is _BatchNorm.forward


def batched(holder: nn.Module, name: str, act: str, of: str = "", between: str = "") -> Batched | None:
    """Return a norm and an activation of a layer as one kernel, if the library has it.

    Args:
        holder: the layer.
        name: of the norm.
        act: the name of the activation, where it is a layer.
        of: its function, where it is none.
        between: what is between the two: `add_` or nothing.
    """
    plain = None
    if act:
        layer = holder._modules.get(act)
        found = "" if layer is None or layer._parameters else function_of(layer)
        if isinstance(found, str) or layer is None:
            return None
        of, plain = found.name, Plain.of(layer, found)
    function = f"batch_norm_{between}{of}"
    if function not in batch_names():
        return None
    return Batched(name, type(getattr(holder, name)), function, of, act, plain)
